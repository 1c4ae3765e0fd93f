# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints in a bucket (run.checkpoint_dir), of a server on this machine ($2): as on disk, on another mesh, through
# kills, lost answers and a server that is away; nothing secret is said.
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

# ---- as on disk ----

run 0 bucket train out 's3://bucket/a b/run'
contains bucket.out "stored in out: metrics.jsonl, resolved.json, and in s3://bucket/a b/run (newest: step 8)"
[ ! -e out/checkpoints ] || fail "there are local checkpoints"
run 0 local "$mics" train run.json --ranks 2 --out local
same_losses out local
bucket="site/bucket/a b/run"
for step in 4 8; do
    same_weights local/checkpoints/step-0000000$step "$bucket/step-0000000$step"
    cmp local/checkpoints/step-0000000$step/config.json "$bucket/step-0000000$step/config.json" || fail "config.json differs"
done
[ "$(cat "$bucket/latest")" = step-00000008 ] || fail "latest names $(cat "$bucket/latest")"

# Older ones go, and a run goes on, here on another mesh by ranges.
: >site/requests.log
run 0 onward train out 's3://bucket/a b/run' --ranks 4 --steps 16
contains onward.out "resumed"
grep -q '^GET /bucket/a%20b/run/step-00000008/rank-0000[01].safetensors bytes=[1-9]' site/requests.log || fail "no range was read"
run 0 local_onward "$mics" train run.json --ranks 4 --steps 16 --out local
same_losses out local
[ "$(ls "$bucket")" = "latest
step-00000012
step-00000016" ] || fail "older checkpoints are left: $(ls "$bucket")"

# Whatever reads checkpoints reads these.
run 0 verify "$mics" verify 's3://bucket/a b/run'
contains verify.out "step 12"
run 0 verify_step "$mics" verify 's3://bucket/a b/run/step-00000016'
run 0 generate "$mics" generate 's3://bucket/a b/run' --prompt the --tokens 4
run 0 from_local "$mics" generate local --prompt the --tokens 4
cmp generate.out from_local.out || fail "it writes another text"
run 0 convert "$mics" convert 's3://bucket/a b/run/latest' folder
run 0 other train other s3://bucket/other --resume 's3://bucket/a b/run/step-00000012' --steps 16 --ranks 4
tail -n 4 local/metrics.jsonl | cut -d , -f 1,2 >left
tail -n 4 other/metrics.jsonl | cut -d , -f 1,2 >right
cmp left right || fail "a checkpoint of another run gives other losses"
run 2 again train again s3://bucket/other --resume none
contains again.err "holds checkpoints, which are not overwritten"

# A damaged byte is found, and an older checkpoint taken.
printf 'X' | dd of="$bucket/step-00000016/rank-00001.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
run 1 damaged "$mics" verify 's3://bucket/a b/run'
contains damaged.out "differ from their checksum"
run 0 older train out 's3://bucket/a b/run' --ranks 4 --steps 20
contains older.err "step 16 is passed over"
rm "$bucket/step-00000020/rank-00002.safetensors"
run 0 lacking train out 's3://bucket/a b/run' --ranks 4 --steps 21
contains lacking.err "step-00000020/rank-00002.safetensors: missing"

# ---- in parts ----

sed 's/"n_embd": 32/"n_embd": 320/; s/"n_layer": 2/"n_layer": 4/' model.json >big.json
big() { # OUT BUCKET FLAGS...
    train "$@" --set model.config=big.json --steps 1
}
run 0 big_local "$mics" train run.json --ranks 2 --out big_local --set model.config=big.json --steps 1
: >site/requests.log
fault PUT partNumber=2 503 SlowDown
fault PUT partNumber=1 0 none
fault POST uploadId= 0 none
fault POST uploads= 500 InternalError
run 0 big big big s3://bucket/big
no_faults
same_weights big_local/checkpoints/step-00000001 site/bucket/big/step-00000001
grep -q 'PUT .*partNumber=3' site/requests.log || fail "the model is too small for parts"
[ -z "$(ls site/uploads)" ] || fail "uploads are left"

# A part that is refused ends the upload, and the save; a run that only that save would have ended fails.
fault PUT partNumber=2 403 AccessDenied
run 1 refused big refused s3://bucket/refused
contains refused.err "rank-0000"
contains refused.err "PUT: the server says 403 AccessDenied: as told; look at the credentials"
[ ! -e site/bucket/refused ] || fail "a part of a checkpoint is left: $(find site/bucket/refused)"
[ -z "$(ls site/uploads)" ] || fail "its upload is left"

# A server that swallows what cleans up after a failed save is asked once, and not for long: the line says what is left.
# Tries without a limit would end otherwise: "Operation too slow", and only then.
fault PUT partNumber=2 403 AccessDenied
fault DELETE rank-0000 -1 none
fault DELETE rank-0000 -1 none
: >site/requests.log
run 1 swallowed big swallowed s3://bucket/swallowed
no_faults
[ "$(grep -c '^DELETE .* -1$' site/requests.log)" = 2 ] || fail "asked more than once: $(grep DELETE site/requests.log)"
grep -q 'warning: .*rank-0000.*: no answer came from .* timed out after .*; what was uploaded of it is left there until the next start' \
    swallowed.err || fail "no line of the upload that is left"
grep -q 'warning: .*rank-0000.*: no answer came from .* timed out after .*; it is left there until a later save or start removes it' \
    swallowed.err || fail "no line of the file that is left"
run 0 restarted big swallowed s3://bucket/swallowed
[ -z "$(ls site/uploads)" ] || fail "the next start left an upload"
same_weights big_local/checkpoints/step-00000001 site/bucket/swallowed/step-00000001

# ---- kills ----

for delay in 0.3 0.6 0.9; do
    rm -f killed.out
    # the program itself, as its signal must not end a shell alone
    "$mics" train run.json --ranks 2 --out killed --steps 100000 --set run.checkpoint_dir=s3://bucket/killed \
        --set run.checkpoint_every=1 --set run.log_every=1 --set run.validation_batches=0 >killed.out 2>killed.err &
    pid=$!
    await $pid "a checkpoint" grep -qs '^checkpoint step' killed.out
    sleep $delay
    kill -9 $pid
    wait $pid 2>wait.err
    told=$(sed -n 's/^checkpoint step \([0-9]*\) written.*/\1/p' killed.out | tail -n 1)
    newest=$(sed 's/^step-0*//' site/bucket/killed/latest)
    [ "$newest" -ge "$told" ] || fail "step $told was reported as written, and $newest is the newest"
    run 0 verify_killed "$mics" verify "s3://bucket/killed/step-$(printf %08d "$newest")"
done
# What killed processes left of uploads is given up at the next start.
mkdir -p site/uploads/lost
printf /bucket/killed/step-00000001/rank-00000.safetensors >site/uploads/lost/key
mkdir -p site/uploads/others site/uploads/below
printf /bucket/killed2/step-00000001/rank-00000.safetensors >site/uploads/others/key
printf /bucket/killed/one/step-00000001/rank-00000.safetensors >site/uploads/below/key
run 0 after train killed s3://bucket/killed --steps $((newest + 1)) --set run.validation_batches=0
contains after.out "step $newest, resumed"
[ "$(ls site/uploads)" = "below
others" ] || fail "uploads are left, or those of another run are not: $(ls site/uploads)"
run 0 straight "$mics" train run.json --ranks 2 --out straight --steps $((newest + 1)) --set run.checkpoint_every=0 \
    --set run.validation_batches=0
same_losses straight killed

# ---- what is refused ----

run 2 no_url train bad /tmp/checkpoints
contains no_url.err "run.checkpoint_dir: must be as s3://BUCKET/PREFIX"
run 2 no_prefix train bad s3://bucket
contains no_prefix.err "must be as s3://BUCKET/PREFIX"
run 2 no_name train bad 's3://bucket/a&b'
contains no_name.err "without & < > and quotes"
AWS_ENDPOINT_URL=$AWS_ENDPOINT_URL/path run 2 no_endpoint train bad s3://bucket/x
contains no_endpoint.err "AWS_ENDPOINT_URL must be as https://HOST:PORT"
run 2 no_out "$mics" train run.json --out s3://bucket/x
contains no_out.err "run.checkpoint_dir puts checkpoints into a bucket"
run 2 no_bucket train bad s3://none/x
contains no_bucket.err "the server says 404 NoSuchBucket"
contains no_bucket.err "look at the bucket's name and AWS_ENDPOINT_URL"
one_line no_bucket.err
AWS_ACCESS_KEY_ID='' run 2 nobody train bad s3://bucket/x
contains nobody.err "no credentials were found: set AWS_ACCESS_KEY_ID"
AWS_SESSION_TOKEN=wr0ng run 2 token train bad s3://bucket/x
contains token.err "the server says 403 AccessDenied"
run 2 offline train bad s3://bucket/x --offline
contains offline.err "--offline or HF_HUB_OFFLINE says to ask nobody"
[ ! -e bad ] || fail "a run that did not begin left its folder"

# ---- a server that is away ----

"$mics" train run.json --ranks 2 --out away --steps 100000 --set run.checkpoint_dir=s3://bucket/away \
    --set run.checkpoint_every=20 --set run.log_every=1 --set run.validation_batches=0 >away.out 2>away.err &
pid=$!
await $pid "a checkpoint" grep -qs '^checkpoint step' away.out
kill $server
await $pid "a warning" grep -qs 'could not be saved; training goes on' away.err
contains away.err "no answer came from 127.0.0.1"
kill -9 $pid
wait $pid 2>wait.err
run 1 dark train away s3://bucket/away
contains dark.err "no answer came from 127.0.0.1"

# ---- nothing secret is said ----

! grep -rE 's3cr3t|t0ken|wr0ng' ./*.out ./*.err out killed away big site/bucket || fail "a secret is kept"
run 1 verify_dark "$mics" verify s3://bucket/away
contains verify_dark.err "no answer came from 127.0.0.1"
