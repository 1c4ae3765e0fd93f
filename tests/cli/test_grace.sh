# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A disk ($2, preloaded) that is too slow for run.grace_s: the step that was done last goes to node memory, without
# run.memory_checkpoint_every, between steps and in the middle of one, and the next start takes it from there. Ranks
# are threads, or what a launcher ($3...) starts.
. "$(dirname "$0")/lib.sh"
slow=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
mkdir -p shm/0 shm/1
# Ranks 0 and 1 are on node 0, 2 and 3 on node 1. Without a launcher two folders of one memory are the nodes'.
cat >node.sh <<'SH'
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
MICS_SHM_DIR=${NO_MEMORY:-shm/$((rank / 2))}
[ -z "${DISK_S:-}" ] || export LD_PRELOAD="$SLOW" MICS_TEST_DISK_S="$DISK_S"
export MICS_SHM_DIR
exec "$@"
SH
export SLOW="$slow"
ranks=--nodes
[ $# -gt 0 ] || ranks="--ranks 4 --nodes"
launch=$*
zero3="--set sharding.params=4 --set sharding.grads=4 --set sharding.optimizer=4"
micro=1000
[ $# -gt 0 ] || micro=2000 # threads are faster
long="--set train_batch_size=$((8 * micro)) --set gradient_accumulation_steps=$micro --set run.validation_batches=0"

train() { # FLAGS...
    $launch sh node.sh "$mics" train run.json $ranks 2 --set run.log_every=1 "$@"
}
begin() { # OUT LINE FLAGS...: a run in the background, until it has printed that line
    out=$1 line=$2
    shift 2
    run_name=$out
    (exec $launch sh node.sh "$mics" train run.json $ranks 2 --set run.log_every=1 --out "$out" "$@") \
        >"$out.out" 2>"$out.err" </dev/null &
    pid=$!
    await $pid "$out: line $line" grep -qs "^$line" "$out.out"
}
# Begins a run as above and stops it by SIGUSR1, which launchers pass on: with $in_step in the middle of step 2. Tried again
# where the machine stood still until the grace was over, an error by right, or for as long as a step takes.
stop() { # OUT LINE FLAGS...: leaves the milliseconds that stopping took in $waited_ms, those of step 1 in $step_ms
    for _ in 1 2 3 4 5; do
        rm -rf "$1" "$1.out" shm/[01]/*
        begin "$@"
        [ -z "$in_step" ] || sleep 0.3
        begun=$(date +%s%N)
        kill -USR1 $pid
        wait "$pid"
        status=$?
        waited_ms=$((($(date +%s%N) - begun) / 1000000))
        step_ms=$(sed -n 's/.*"step": 1,.*"step_ms": \([0-9]*\).*/\1/p' "$1/metrics.jsonl")
        grep -q 'not all ranks have finished or saved their step within' "$1.err" && continue
        [ -n "$in_step" ] || break
        grep -q ' after step 1, which is in node memory' "$1.err" && [ $waited_ms -lt "$step_ms" ] && break
    done
    [ $status = 75 ] || fail "$out: exit status $status, expected 75"
}
kept() { # OUT LINE FLAGS...: likewise; the step, which is in memory alone, is left in $step
    stop "$@"
    # The save that is due in the step that stops may have begun before it is known to be the last.
    grep -qF -e "of run.grace_s are left; it goes to node memory first" -e "is not on disk at half of run.grace_s" \
        "$out.err" || fail "$out: no step goes to node memory"
    contains "$out.err" "mics: stopped by SIGUSR1 after step"
    step=$(sed -n 's/.* after step \([0-9]*\), which is in node memory and not on disk.*/\1/p' "$out.err")
    [ -n "$step" ] || fail "$out: no step is in node memory"
}
copies() { # OUT: prints the folders of its copies
    ls -d shm/[01]/mics-*-"$(cat "$1/run-id")" 2>copies.err
}
goes_on() { # OUT STEP FLAGS...: from memory, to two steps later, with the losses of a run that never stopped
    on=$1 last=$(($2 + 2)) from=$2
    shift 2
    run 0 "$on" train --out "$on" --steps $last "$@"
    contains "$on.out" "start     step $from, resumed from node memory, no checkpoint read from disk"
    run 0 straight train --out "straight-$on" --steps $last "$@"
    same_losses "straight-$on" "$on"
    [ -z "$(copies "$on")" ] || fail "$on: a finished run left copies in memory"
    [ -e "$on/node-memory" ] && fail "$on: a finished run left notes"
}

# Between short steps.
DISK_S=600
export DISK_S
in_step=
kept between "step 1/" --steps 100000 --set run.checkpoint_every=0 --set run.grace_s=0.01
[ -e between/checkpoints/latest ] && fail "nothing should be on disk"
DISK_S=
goes_on between "$step" --set run.checkpoint_every=0

# The same, found late by what the save before took; a newer one may be under way.
DISK_S=3
kept measured "checkpoint step 20 written" --steps 100000 --set run.checkpoint_every=20 --set run.grace_s=1.5
DISK_S=
goes_on measured "$step" --set run.checkpoint_every=0

# In the middle of a long one, which is not waited for; each shard is on one node alone.
DISK_S=600
in_step=yes
kept long "step 1/" --steps 3 --set run.checkpoint_every=0 --set run.grace_s=0.01 $long $zero3
in_step=
[ "$step" = 1 ] || fail "step 1 was done last, not $step"
[ $waited_ms -lt "$step_ms" ] || fail "stopping took $waited_ms ms, and a step $step_ms ms"
[ -e long/checkpoints/latest ] && fail "nothing should be on disk"
DISK_S=
cp -r long lost && cp -r shm lost.shm
run 0 long train --out long --steps 2 $long $zero3
contains long.out "start     step 1, resumed from node memory, no checkpoint read from disk"
run 0 straight train --out straight --steps 2 $long $zero3
same_losses straight long
[ -z "$(copies long)" ] || fail "a finished run left copies in memory"

# A node of them is lost: that is said.
rm -rf shm && mv lost.shm shm
rm -rf shm/1/*
[ $# -gt 0 ] || rm -rf shm/0/*/node-1
run 0 lost train --out lost --steps 1 $zero3
contains lost.err "the run was stopped with step 1 in node memory, which these nodes do not have; it goes on from step 0"

# Nodes whose memory has no place: a line says so, and the save to disk goes on.
NO_MEMORY=$work/nowhere
export NO_MEMORY
stop placeless "step 1/" --steps 100000 --set run.checkpoint_every=0 --set run.grace_s=0.01
contains placeless.err "is not kept in node memory; it goes to disk until run.grace_s is over"
contains placeless.err "mics: stopped by SIGUSR1 after step"
[ -e placeless/checkpoints/latest ] || fail "placeless: the step is not on disk"
exit 0
