# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Checkpoints on their way to a bucket of a server on this machine ($2): through kills and a server that
# is away; nothing secret is said.
. "$(dirname "$0")/bucket.sh"

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

no_secret killed away
