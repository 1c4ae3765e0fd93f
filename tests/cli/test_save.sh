# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Saves behind the steps: what is reported as written survives kill -9 at any moment, a save that fails is no end, and
# the newest good checkpoint stays until a later step was good.
. "$(dirname "$0")/lib.sh"

train() { # OUT FLAGS...
    out=$1
    shift
    "$mics" train run.json --ranks 4 --nodes 2 --out "$out" --set run.layered_micro_steps=1 "$@"
}

# All ranks write, each its part; and memory that is too small for a copy changes no byte.
run 0 behind train behind --set run.checkpoint_every=2 --set run.keep_checkpoints=0
[ "$(ls behind/checkpoints/step-00000002/rank-* | wc -l)" = 4 ] || fail "each of 4 ranks should write"
[ -e behind/checkpoints/step-00000002/rank-00000.part.safetensors ] && fail "a part is left"
limit=$("$mics" explain run.json --ranks 4 --nodes 2 --set run.layered_micro_steps=1 | sed -n '/^  in all/{s/.* \([0-9]*\) B$/\1/p;q}')
run 0 waiting train waiting --set run.checkpoint_every=2 --set run.keep_checkpoints=0 --set run.memory_limit="$limit"
contains waiting.err "saves stop training until they are on disk"
for step in 2 4 6 8; do
    same_weights behind/checkpoints/step-0000000$step waiting/checkpoints/step-0000000$step
done

# kill -9 at random moments.
for delay in 0.4 0.75 0.55 0.9 0.65; do
    rm -f killed.out
    "$mics" train run.json --ranks 4 --nodes 2 --set run.layered_micro_steps=1 --out killed --steps 100000 --set run.checkpoint_every=1 \
        --set run.log_every=1 >killed.out 2>killed.err &
    pid=$!
    await $pid "a checkpoint" grep -qs '^checkpoint step' killed.out
    sleep $delay
    kill -9 $pid
    wait $pid 2>wait.err
    told=$(sed -n 's/^checkpoint step \([0-9]*\) written.*/\1/p' killed.out | tail -n 1)
    newest=$(sed 's/^step-0*//' killed/checkpoints/latest)
    [ "$newest" -ge "$told" ] || fail "step $told was reported as written, and $newest is the newest"
done
run 0 onward train killed --steps $((newest + 1))
contains onward.out "step $newest, resumed"
ls killed/checkpoints/*/*.part.safetensors 2>ls.err && fail "parts of saves that were killed are left"
run 0 straight train straight --steps $((newest + 1)) --set run.checkpoint_every=0
same_losses straight killed

# What was good stays until a step after the newer one was good, also where only one checkpoint is kept.
run 0 grown train grown --steps 4 --set run.keep_checkpoints=1
sed '/"scheduler"/,/}},/d' run.json >plain.json
cp -r grown blown
run 1 blown "$mics" train plain.json --ranks 4 --nodes 2 --out blown --steps 8 --set run.checkpoint_every=1 \
    --set run.keep_checkpoints=1 --set optimizer.params.lr=1e6 --set optimizer.params.weight_decay=1000
[ -f blown/checkpoints/step-00000004/manifest.json ] || fail "the last good checkpoint is gone"

# A disk that fills up: a warning, and training goes on; when there is space again the next save succeeds. A final save
# that fails is an error. Skipped where a test may not mount a file system.
mkdir disk
unshare -rm sh -c 'mount -t tmpfs none disk' 2>unshare.err || { echo "not tried: no file system can be mounted"; exit 0; }
cat >full.sh <<'SH'
mount -t tmpfs -o size=1500k none disk && head -c 1200000 /dev/zero >disk/filler || exit 3
"$@" --steps 100000 --set run.checkpoint_every=5 --set run.keep_checkpoints=1 >full.out 2>full.err &
pid=$!
for _ in $(seq 3000); do
    grep -q 'could not be saved' full.err && break
    sleep 0.1
done
kill -0 $pid || exit 4
rm disk/filler
for _ in $(seq 3000); do
    grep -q '^checkpoint step' full.out && break
    sleep 0.1
done
kill -USR1 $pid
wait $pid || [ $? = 75 ] || exit 5
head -c 2000000 /dev/zero >disk/filler 2>/dev/null
newest=$(sed 's/^step-0*//' disk/out/checkpoints/latest)
"$@" --steps $((newest + 3)) >final.out 2>final.err
[ $? = 1 ] || exit 6
[ "$newest" = "$(sed 's/^step-0*//' disk/out/checkpoints/latest)" ] || exit 7
SH
run 0 full unshare -rm sh full.sh "$mics" train run.json --ranks 4 --nodes 2 --out disk/out --set run.log_every=1
contains full.err "No space left on device"
contains full.err "training goes on, and saves when it is due next"
grep -q '^mics: error' full.err && fail "a save that fails is no error while training goes on"
contains final.err "mics: error: "
exit 0
