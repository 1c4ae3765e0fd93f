# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints in a bucket (run.checkpoint_dir), of a server on this machine ($2): as on disk, on another mesh, and what is
# refused; nothing secret is said.
. "$(dirname "$0")/bucket.sh"

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

no_secret out
