# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A stop while a run tokenizes, opens its folder, waits for an older save, or ends: exit status 75 where it is to be started
# again, which resumes from the step that was done last, and 0 where it was done. Files ($2, preloaded) are slow to open,
# so that it is known what the run does. Ranks are threads, or what a launcher ($3...) starts.
. "$(dirname "$0")/lib.sh"
slow=$2
shift 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
ranks=
[ $# -gt 0 ] || ranks="--ranks 2"
launch=$*
cat >node.sh <<'SH'
[ -z "${SLOW:-}" ] || export LD_PRELOAD="$SLOW"
exec "$@"
SH
export MICS_TEST_SLOW MICS_TEST_SLOW_S MICS_TEST_DISK_S SLOW
MICS_SHM_DIR=$work/shm
export MICS_SHM_DIR
mkdir shm

begin() { # OUT FLAGS...: a run in the background
    out=$1
    shift
    run_name=$out
    rm -rf "$out" "$out.out" "$out.err"
    (exec $launch sh node.sh "$mics" train run.json $ranks --out "$out" --set run.log_every=1 "$@") \
        >"$out.out" 2>"$out.err" </dev/null &
    pid=$!
}
ends() { # STATUS
    wait "$pid"
    status=$?
    [ $status = "$1" ] || fail "$out: exit status $status, expected $1"
}

# ---- before training ----

for phase in bin.vm.begun resolved.json run-id; do
    for signal in TERM INT HUP USR1 USR2; do
        # Launchers take these for themselves, and end by them.
        case $launch,$signal in ?*,TERM | ?*,INT | ?*,HUP) continue ;; esac
        SLOW=$slow MICS_TEST_SLOW=$phase MICS_TEST_SLOW_S=300
        begin before --steps 2
        await $pid "before: $phase" grep -qs "^slow: .*$phase" before.err
        begun=$(date +%s)
        kill -$signal $pid
        ends 75
        [ $(($(date +%s) - begun)) -lt 200 ] || fail "a stop before training should not wait"
        [ -n "$launch" ] || contains before.err "mics: stopped by SIG$signal; no step was trained"
    done
done
SLOW=
run 0 before $launch "$mics" train run.json $ranks --out before --steps 2

# ---- an older save ----

# Step 1 takes the disk long, and step 2 waits for it.
SLOW=$slow MICS_TEST_SLOW=none MICS_TEST_SLOW_S=0 MICS_TEST_DISK_S=60
begin older --steps 50 --set run.checkpoint_every=1 --set run.grace_s=4
await $pid "older: step 2" grep -qs '"step": 1,' older/metrics.jsonl
sleep 1 # then it waits; on a machine that stood still it is in step 2, and what follows holds too
kill -USR1 $pid
ends 75
# What waits for the disk has it there.
at=$(sed -n 's/^mics: stopped by SIGUSR1 after step \([12]\), which is in node memory and not on disk.*/\1/p' older.err)
[ -n "$at" ] || fail "the older save should not be waited for"
SLOW=
run 0 older $launch "$mics" train run.json $ranks --out older --steps 4
contains older.out "start     step $at, resumed from node memory"
run 0 straight $launch "$mics" train run.json $ranks --out straight --steps 4
same_losses straight older

# ---- behind the last step ----

# Its save takes the disk long; nothing but that is left to do.
SLOW=$slow MICS_TEST_DISK_S=60
begin last --steps 3 --set run.checkpoint_every=0 --set run.grace_s=2
await $pid "last: saving" grep -qs '^saving step 3' last.out
kill -USR1 $pid
ends 75
contains last.err "mics: stopped by SIGUSR1 after step 3, which is in node memory and not on disk"
SLOW=
run 0 last $launch "$mics" train run.json $ranks --out last --steps 3
contains last.out "start     step 3, resumed from node memory"
run 0 last "$mics" verify last
[ -d last/checkpoints/step-00000003 ] || fail "the last step should be on disk"
run 0 last $launch "$mics" train run.json $ranks --out last --steps 3
contains last.out "last holds the finished run"

# What is printed of a run that is done.
for signal in TERM INT HUP USR1 USR2; do
    case $launch,$signal in ?*,TERM | ?*,INT | ?*,HUP) continue ;; esac
    SLOW=$slow MICS_TEST_SLOW=checkpoints/./latest MICS_TEST_SLOW_S=1 MICS_TEST_DISK_S=
    begin done --steps 3
    await $pid "done: the end" grep -qs "^slow: .*checkpoints/./latest" done.err
    kill -$signal $pid
    ends 0
    contains done.out "stored in done"
done
exit 0
