# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Disks of several sizes, from one that has no space for a checkpoint to one for all: the start says what does not fit, older
# checkpoints go before a save fails, and what is not on disk is in node memory, from where the next start resumes. Skipped
# where a test may not mount file systems. Ranks are threads, or what a launcher ($2...) starts.
. "$(dirname "$0")/lib.sh"
shift
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
ranks=
[ $# -gt 0 ] || ranks="--ranks 2"
launch=$*
mkdir disk shm
MICS_SHM_DIR=$work/shm
export MICS_SHM_DIR launch ranks mics
unshare -rm sh -c 'mount -t tmpfs -o size=64k none disk' 2>/dev/null ||
    { echo "skipped: no file system can be mounted here" >&2; exit 77; }

# A checkpoint takes 420 KiB. The folder is copied to NAME before the disk grows, and at the end, as its file system goes.
cat >on_disk.sh <<'SH'
status=$1 size=$2 name=$3
shift 3
mount -t tmpfs -o size="$size" none disk || exit 77
train() {
    $launch "$mics" train run.json $ranks --out disk/out --set run.validation_batches=0 --set run.grace_s=2 "$@"
}
train "$@"
found=$?
[ $found = "$status" ] || exit $((100 + found))
cp -r disk/out "$name"
[ "$status" != 0 ] || exit 0
mount -o remount,size=4m disk || exit 77
train "$@" >"$name.again" || exit 1
cp -r disk/out "$name-again"
SH
on_disk() { # STATUS SIZE NAME FLAGS...: where it fails, once more with space
    status=$1 size=$2 out=$3
    shift 3
    run 0 "$out" unshare -rm sh on_disk.sh "$status" "$size" "$out" "$@"
}
steps_of() { # OUT: those of its checkpoints
    ls "$1/checkpoints" 2>/dev/null | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tr '\n' ' '
}

run 0 straight $launch "$mics" train run.json $ranks --steps 12 --out straight --set run.validation_batches=0
every="--steps 12 --set run.checkpoint_every=2 --set run.keep_checkpoints=3"

# All fit.
on_disk 0 4m all $every
no_line all.err
[ "$(steps_of all)" = "8 10 12 " ] || fail "all: checkpoints $(steps_of all)"

# Two and a half: older ones go sooner, which the start says.
on_disk 0 1200k some $every
contains some.err "disk/out: its file system has"
contains some.err "and run.keep_checkpoints 3 takes"
contains some.err "the oldest, is removed"
[ "$(steps_of some)" = "10 12 " ] || fail "some: checkpoints $(steps_of some)"
same_losses straight some

# One and a half: nothing older than the newest good one can go. What follows that is in node memory.
on_disk 1 700k one $every
contains one.err "could not be saved, as the disk is full; training goes on"
contains one.err "is in node memory, as the disk is full; --resume auto resumes from it on the same nodes"
contains one.err "the save is tried again until run.grace_s (2 s) is over"
contains one.err "which is in node memory alone; free space there, and start the run again on the same nodes"
run 0 verified "$mics" verify one
contains one.again "start     step 12, resumed from node memory"
run 0 verified "$mics" verify one-again
case $(steps_of one-again) in *"12 ") ;; *) fail "one: step 12 should be on disk" ;; esac
same_losses straight one-again

# None.
on_disk 1 300k none $every
contains none.err "has no space for step 12"
[ -z "$(steps_of none)" ] || fail "none: checkpoints $(steps_of none)"
contains none.again "start     step 12, resumed from node memory"
same_losses straight none-again
[ -z "$(ls shm)" ] || fail "finished runs left copies in memory"
exit 0
