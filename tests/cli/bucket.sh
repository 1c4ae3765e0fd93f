# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What the tests of checkpoints in a bucket share; sourced with the program as $1 and a server's as $2, in place of lib.sh.
. "$(dirname "$0")/lib.sh"
stub=$2
unset AWS_PROFILE AWS_ENDPOINT_URL_S3 HF_HUB_OFFLINE http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=s3cr3t AWS_SESSION_TOKEN=t0ken AWS_REGION=eu-central-1 no_proxy=127.0.0.1
export HOME="$work" XDG_CACHE_HOME="$work/cache"
case $("$mics" tokenize http://127.0.0.1:1/x --out x.bin 2>&1) in *"libcurl, which downloads"*) exit 77 ;; esac

mkdir -p site/bucket site/faults
server=
serve() {
    rm -f port
    "$stub" site port 2 & # two names a page
    server=$!
    await $server "the server's port" test -s port
    AWS_ENDPOINT_URL=http://127.0.0.1:$(cat port)
    export AWS_ENDPOINT_URL
}
trap 'kill $server 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT
serve
train() { # OUT BUCKET FLAGS...
    train_out=$1 train_to=$2
    shift 2
    "$mics" train run.json --ranks 2 --out "$train_out" --set run.checkpoint_dir="$train_to" "$@"
}
fault() { # METHOD TEXT STATUS CODE
    fault_count=$((${fault_count:-0} + 1))
    echo "$@" >site/faults/$fault_count
}
no_faults() {
    [ -z "$(ls site/faults)" ] || fail "no request took the fault $(cat site/faults/*)"
}
no_secret() { # FILE...
    ! grep -rE 's3cr3t|t0ken|wr0ng' ./*.out ./*.err "$@" site/bucket || fail "a secret is kept"
}
