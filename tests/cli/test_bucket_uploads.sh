# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints on their way to a bucket of a server on this machine ($2): in parts, through kills, lost answers and a server
# that is away; nothing secret is said.
. "$(dirname "$0")/bucket.sh"

# ---- in parts ----

sed 's/"n_embd": 32/"n_embd": 320/; s/"n_layer": 2/"n_layer": 3/' model.json >big.json
one_step="--set model.config=big.json --steps 1 --set train_batch_size=4 --set run.validation_batches=0"
# Word splitting is meant.
# shellcheck disable=SC2086
big() { # OUT BUCKET FLAGS...
    train "$@" $one_step
}
# shellcheck disable=SC2086
run 0 big_local "$mics" train run.json --ranks 2 --out big_local $one_step
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
run 1 verify_dark "$mics" verify s3://bucket/away
contains verify_dark.err "no answer came from 127.0.0.1"

no_secret killed away big
