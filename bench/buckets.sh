#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints in a bucket of a local S3 server, moto's (pip install 'moto[server]') or Swift's (SERVER=swift; swift.sh):
#
#   BUILD=build bench/buckets.sh kills [N]       kill -9 at N random moments (100); each time the newest checkpoint
#                                                must be the one that was reported, or a later one, and verify
#   BUILD=build bench/buckets.sh speed [MIB [N]] a rank file of so many MiB (256) beside curl -T of the same bytes to
#                                                the same server, whole and in mics' parts, by turns, N times (5);
#                                                medians, and how long the server takes to join parts
#
# None of the three hashes the body. Whole, a server has nothing to join: what is left to curl in parts is the server's.
#
# MOTO is moto's command (moto_server). STORE is where Swift keeps objects, as on a RAM disk (a temporary folder).
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${BUILD:-$root/build}" && pwd) || exit 1
mics=$build/mics
work=$(mktemp -d)
server=
store=
trap 'kill $server && wait $server; rm -rf "$work" "$store"' EXIT
trap 'exit 1' INT TERM
cd "$work" || exit 1
port=$(python3 -c 'import random, socket
while True:
    port, sockets = random.randrange(20000, 30000), []
    try:
        for i in range(5):
            sockets.append(socket.socket())
            sockets[-1].bind(("127.0.0.1", port + i))
        break
    except OSError:
        continue
print(port)')
if [ "${SERVER:-moto}" = swift ]; then
    store=$(mktemp -d -p "${STORE:-$work}") || exit 1
    "$root/bench/swift.sh" "$port" "$store" >server.log 2>&1 &
    export AWS_ACCESS_KEY_ID=test:tester AWS_SECRET_ACCESS_KEY=testing
else
    "${MOTO:-moto_server}" -H 127.0.0.1 -p "$port" >server.log 2>&1 &
    export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret
fi
server=$!
export AWS_ENDPOINT_URL="http://127.0.0.1:$port" AWS_REGION=us-east-1 no_proxy=127.0.0.1 \
    MICS_CUDA_PLUGIN="${MICS_CUDA_PLUGIN:-none}" XDG_CACHE_HOME="$work/cache"
# What is not hashed has to be said in a header, which curl 7.88 leaves out.
curl_url=http://$(echo $AWS_ACCESS_KEY_ID | sed 's/:/%3A/'):$AWS_SECRET_ACCESS_KEY@127.0.0.1:$port
signed="--aws-sigv4 aws:amz:us-east-1:s3 -H x-amz-content-sha256:UNSIGNED-PAYLOAD"
unset AWS_PROFILE AWS_ENDPOINT_URL_S3 AWS_SESSION_TOKEN
# Word splitting is meant.
# shellcheck disable=SC2086
until curl -sf $signed -X PUT "$curl_url/bucket" >bucket.log; do
    tries=$((${tries:-0} + 1))
    { kill -0 $server && [ $tries -lt 600 ]; } || { cat server.log "$store"/*.log; exit 1; }
    sleep 0.2
done

text_and_model() {
    awk 'BEGIN {for (i = 1; i < 1500; i++) printf "%s%s", substr("the lark at break of day ", (i * i) % 20 + 1, 4), i % 8 ? " " : "\n"}' >text.txt
    cat >model.json <<'JSON'
{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 256, "n_head": 2, "n_layer": 2, "n_positions": 32,
 "vocab_size": 256, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02, "attn_pdrop": 0.0, "embd_pdrop": 0.0,
 "resid_pdrop": 0.0, "tie_word_embeddings": true}
JSON
    cat >run.json <<'JSON'
{"model": {"config": "model.json"}, "data": {"train": ["text.txt"], "sequence_length": 32},
 "run": {"steps": 1000000, "out": "out", "checkpoint_every": 1, "checkpoint_dir": "s3://bucket/run", "log_every": 1,
         "validation_batches": 0, "threads": 1},
 "train_batch_size": 4, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}},
 "sharding": {"params": 2, "grads": 2, "optimizer": 2}}
JSON
}

# Signed, as whoever is not may read nothing.
ask() { # PATH FLAGS...
    path=$1
    shift
    # shellcheck disable=SC2086
    curl -sf $signed "$@" "$curl_url/bucket$path"
}

kills() {
    text_and_model
    bad=0 saves=0 seen=0
    for i in $(seq "$1"); do
        : >train.out
        "$mics" train run.json --ranks 2 >train.out 2>train.err &
        pid=$!
        until grep -q '^checkpoint step' train.out; do
            kill -0 $pid 2>/dev/null || { cat train.err; exit 1; }
            sleep 0.1
        done
        sleep "$(awk -v seed="$i$$" 'BEGIN {srand(seed); printf "%.3f", 3 * rand()}')"
        kill -9 $pid
        wait $pid 2>/dev/null
        told=$(sed -n 's/^checkpoint step \([0-9]*\) written.*/\1/p' train.out | tail -n 1)
        newest=$(ask /run/latest | sed 's/^step-0*//')
        uploads=$(ask '?uploads=' | grep -o '<UploadId>' | wc -l)
        verdict=good
        { [ "$newest" -ge "$told" ] && "$mics" verify --quiet "s3://bucket/run/step-$(printf %08d "$newest")" >verify.out 2>&1; } ||
            { verdict=BAD; bad=$((bad + 1)); cat verify.out; }
        saves=$((saves + newest - seen)) seen=$newest
        echo "kill $i: step $told was reported, step $newest is the newest, $uploads uploads under way: $verdict"
    done
    echo "$1 kills, $saves checkpoints: $bad bad"
    [ $bad = 0 ]
}

median() { sort -n | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}'; }

# The same parts as mics sends, four at a time, by one curl; whose ETags are MD5s, which are known before.
curl_in_parts() {
    begin=$(date +%s%N)
    id=$(ask '/parts?uploads=' -X POST | sed -n 's,.*<UploadId>\(.*\)</UploadId>.*,\1,p')
    number=0
    for part in part.*; do
        number=$((number + 1))
        printf 'upload-file = %s\nurl = "%s/bucket/parts?partNumber=%d&uploadId=%s"\noutput = curl.out\n' \
            "$part" "$curl_url" $number "$id"
    done >parts.curl
    # shellcheck disable=SC2086
    curl -sf $signed -Z --parallel-max 4 -K parts.curl 2>progress || exit 1
    sent=$(date +%s%N)
    ask "/parts?uploadId=$id" -H 'Content-Type: application/xml' -d @parts.xml -o curl.out || exit 1
    awk -v begin="$begin" -v sent="$sent" -v end="$(date +%s%N)" \
        'BEGIN {printf "%.4f\n", (end - begin) / 1e9 >>"parts.s"; printf "%.4f\n", (end - sent) / 1e9 >>"join.s"}'
}

speed() {
    "$build/bench/bucket_speed" file "$1" >file.s || exit 1
    split -b 8M -a 4 file part.
    {
        printf '<CompleteMultipartUpload>'
        md5sum part.* | awk '{printf "<Part><PartNumber>%d</PartNumber><ETag>\"%s\"</ETag></Part>", NR, $1}'
        printf '</CompleteMultipartUpload>'
    } >parts.xml
    for i in $(seq "$2"); do
        curl_in_parts
        ask /parts >back && cmp file back || exit 1
        ask /curl -T file -o curl.out -w '%{time_total}\n' >>curl.s || exit 1
        "$build/bench/bucket_speed" s3://bucket/mics "$1" >>mics.s || exit 1
        ask /mics >back && cmp file back || exit 1
    done
    awk -v mib="$1" -v curl="$(median <curl.s)" -v parts="$(median <parts.s)" -v join="$(median <join.s)" \
        -v mics="$(median <mics.s)" \
        'BEGIN {printf "%d MiB: mics %.0f MiB/s; curl -T in parts %.0f MiB/s, of which mics is %.0f %%; " \
            "curl -T whole %.0f MiB/s, of which mics is %.0f %%; the server joins parts in %.2f s\n", \
            mib, mib / mics, mib / parts, 100 * parts / mics, mib / curl, 100 * curl / mics, join}'
}

case ${1:-} in
kills) kills "${2:-100}" ;;
speed) speed "${2:-256}" "${3:-5}" ;;
*) echo "usage: bench/buckets.sh kills [N] | speed [MIB [N]]" >&2; exit 2 ;;
esac
