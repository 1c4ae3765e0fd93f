# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What stops a run: signals, OUT/stop, run.max_hours. The step that was done last is saved, soon however long
# a step is, and the run goes on with the bits of one that never stopped.
. "$(dirname "$0")/lib.sh"

launch() { # OUT FLAGS...: a run in the background
    out=$1
    shift
    run_name=$out
    "$mics" train run.json --ranks 4 --nodes 2 --out "$out" --set run.checkpoint_every=0 \
        --set run.log_every=1 --set run.grace_s=600 "$@" >"$out.out" 2>"$out.err" </dev/null &
    pid=$!
}
begin() { # OUT FLAGS...: likewise, until its first step is seen
    launch "$@"
    await $pid "$out: a step" grep -qs '^step 1/' "$out.out"
}
ends() { # STATUS
    wait "$pid"
    status=$?
    [ $status = "$1" ] || fail "$out: exit status $status, expected $1"
}
stopped() { # BY: checks the one line and that the newest checkpoint is of that step, which is left in $step
    ends 75
    one_line "$out.err"
    contains "$out.err" "mics: stopped by $1 after step"
    step=$(sed -n 's/.* after step \([0-9]*\), which is saved in .*/\1/p' "$out.err")
    [ "$(cat "$out/checkpoints/latest")" = "$(printf 'step-%08d' "$step")" ] || fail "$out: step $step is not saved"
}

for signal in HUP USR2; do
    begin "by$signal" --steps 100000
    kill -$signal $pid
    stopped SIG$signal
    [ "$(losses "by$signal" | wc -l)" = "$step" ] || fail "metrics.jsonl should end at the step that is saved"
done
run 0 onward "$mics" train run.json --ranks 4 --nodes 2 --out byUSR2 --steps $((step + 2))
contains onward.out "step $step, resumed"
run 0 straight "$mics" train run.json --ranks 4 --nodes 2 --out straight --steps $((step + 2))
same_losses straight byUSR2

begin file --steps 100000
touch file/stop
stopped "the file stop"
[ -e file/stop ] && fail "the file stop should be gone"

# Also one that leads nowhere.
begin link --steps 100000
ln -s nowhere link/stop
stopped "the file stop"
[ -L link/stop ] && fail "the link stop should be gone"

launch hours --steps 100000 --set run.max_hours=0.0005
stopped run.max_hours

# In the middle of a long step: the step before is saved, and what is left of the step is not waited for.
# It takes some 4 s, on whatever machine and build this is: a stop waits a second for a step.
# Tried again, with another pace, where it stood still meanwhile.
step_ms() { # OUT: of its first step
    sed -n 's/.*"step": 1,.*"step_ms": \([0-9]*\).*/\1/p' "$1/metrics.jsonl"
}
stop_in_a_step() {
    rm -rf pace long long.out
    run 0 pace "$mics" train run.json --ranks 4 --nodes 2 --out pace --steps 1 --set train_batch_size=1600 \
        --set gradient_accumulation_steps=200 --set run.validation_batches=0
    micro_steps=$((200 * 4000 / ($(step_ms pace) + 1) + 1))
    [ $micro_steps -ge 200 ] || micro_steps=200
    long="--set train_batch_size=$((8 * micro_steps)) --set gradient_accumulation_steps=$micro_steps"
    long="$long --set run.validation_batches=0"
    begin long --steps 100 $long
    sleep 0.3
    begun=$(date +%s%N)
    kill -TERM $pid
    stopped SIGTERM
    waited_ms=$((($(date +%s%N) - begun) / 1000000))
}
for _ in 1 2 3 4 5; do
    stop_in_a_step
    [ "$step" = 1 ] && [ $waited_ms -lt "$(step_ms long)" ] && break
done
[ "$step" = 1 ] || fail "step 1 was done last, not $step"
[ $waited_ms -lt "$(step_ms long)" ] || fail "stopping took $waited_ms ms, and a step $(step_ms long) ms"
run 0 longer "$mics" train run.json --ranks 4 --nodes 2 --out long --steps 2 $long
run 0 whole "$mics" train run.json --ranks 4 --nodes 2 --out whole --steps 2 $long
same_losses whole long

# A save that cannot be written is an error.
begin broken --steps 100000
rm -rf broken/checkpoints
touch broken/checkpoints
kill -INT $pid
ends 1
contains broken.err "broken/checkpoints"
exit 0
