#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The campaign of stops: small trainings are asked to stop at random moments from their first printed line to their end,
# with a disk that is fast or slow, and on disks of several sizes. A stop has to end with 75, or with 0 where the run was
# done, and the same command has to resume from the step that was done last to the losses of an undisturbed run.
#
#   stops.sh MICS SLOW_DISK [--stops N] [--seed S] [--launcher "mpirun -n 2"]
#
# SLOW_DISK: libslow_disk.so of tests/cli. Prints a table of what was tried and what held. KEEP=1 leaves the runs behind.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mics=$(readlink -f "${1:?"usage: stops.sh MICS SLOW_DISK [--stops N] [--seed S] [--launcher COMMAND]"}")
slow=$(readlink -f "${2:?"give libslow_disk.so"}")
shift 2
stops=80 seed=1 launcher=
while [ $# -gt 0 ]; do
    case $1 in
    --stops) stops=$2 ;;
    --seed) seed=$2 ;;
    --launcher) launcher=$2 ;;
    *) echo "stops.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
RANDOM=$seed
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
set -- "$mics"
# shellcheck source=../cli/lib.sh
. "$source_dir/../cli/lib.sh"
export MICS_SHM_DIR=$work/shm
mkdir shm
ranks="--ranks 2"
[ -z "$launcher" ] || ranks=
steps=40

train() { # OUT FLAGS...
    local out=$1
    shift
    exec $launcher env ${preload:+LD_PRELOAD=$slow MICS_TEST_DISK_S=$preload} "$mics" train run.json $ranks --out "$out" \
        --steps $steps --set run.checkpoint_every=4 --set run.grace_s=3 --set run.log_every=1 "$@"
}
declare -A tried held
broken=0
count() { # WHAT OK?
    tried[$1]=$((${tried[$1]:-0} + 1))
    [ "$2" = yes ] && held[$1]=$((${held[$1]:-0} + 1)) && return
    broken=$((broken + 1))
    echo "stops.sh: $1: $3: $(grep -v '^slow' newest.err | tail -n 2)" >&2
}
as_undisturbed() { # OUT
    losses straight >left.txt
    losses "$1" >right.txt
    cmp -s left.txt right.txt
}
# The newest step that was done when the run ended.
done_by() {
    losses "$1" 2>/dev/null | wc -l
}

preload=
(train straight) >newest.out 2>newest.err </dev/null || fail "the undisturbed run fails"
for ((i = 0; i < stops; i++)); do
    rm -rf run newest.out
    preload=
    what="the disk is fast"
    [ $((i % 3)) = 0 ] && preload=30 what="the disk takes 30 s a file, run.grace_s is 3 s"
    signals=(TERM INT HUP USR1 USR2)
    [ -z "$launcher" ] || signals=(USR1 USR2) # the others end the launcher
    signal=${signals[RANDOM % ${#signals[@]}]}
    : >newest.out
    (train run) >newest.out 2>newest.err </dev/null &
    pid=$!
    until [ -s newest.out ] || ! kill -0 $pid 2>/dev/null; do sleep 0.005; done
    sleep "$(awk -v ms=$((RANDOM % ${SPAN:-700})) 'BEGIN { print ms / 1000 }')"
    kill -$signal $pid 2>/dev/null
    wait $pid
    status=$?
    at=$(done_by run)
    if [ "$at" = 0 ]; then
        what="before the first step, $what"
    elif [ "$at" -lt $steps ]; then
        what="in training, $what"
    else
        what="behind the last step, $what"
    fi
    preload=
    cp newest.err stopped.err
    [ $status = 75 ] || [ $status = 0 ] || { count "$what" no "status $status after step $at" && continue; }
    (train run) >newest.out 2>newest.err </dev/null || { count "$what" no "the next start fails" && continue; }
    from=$(sed -n 's/^start .*step \([0-9]*\), resumed.*/\1/p' newest.out)
    if [ $status = 75 ] && [ "${from:-0}" -lt "$at" ]; then
        count "$what" no "resumes from step ${from:-0}, and $at were done"
    elif as_undisturbed run; then
        count "$what" yes
    else
        count "$what" no "other losses"
    fi
done

# The lines of metrics.jsonl that a run says to lack: the first it cannot write is told as such, several are counted at the
# end.
said_lost() { # STDERR
    local counted
    counted=$(sed -n 's/.*metrics.jsonl lacks \([0-9]*\) lines$/\1/p' "$1")
    echo "${counted:-$(grep -c 'metrics.jsonl lacks what could not be written' "$1")}"
}
# What is wrong with a run whose disk was too small at first, or nothing. Lines that found no space may be missing, where
# they are said to; a resume from before them writes them again.
wrong_with() { # OUT STDERR
    local lacking
    "$mics" verify "$1" >verified.out 2>&1 || { echo "mics verify: $(grep -v ': good' verified.out)" && return; }
    losses straight >left.txt
    losses "$1" >right.txt
    ! grep -vxFf left.txt right.txt >other.txt || { echo "other losses, at first: $(head -n 1 other.txt)" && return; }
    lacking=$(($(wc -l <straight/metrics.jsonl) - $(wc -l <"$1/metrics.jsonl")))
    [ $lacking -le "$(said_lost "$2")" ] ||
        echo "metrics.jsonl lacks $lacking lines, $(said_lost "$2") are said; its last loss: $(tail -n 1 right.txt)"
}

# Disks from one that has no space for a checkpoint to one for all.
mkdir -p disk
for size in 150k 300k 430k 480k 560k 700k 860k 950k 1100k 1300k 1800k 3000k; do
    [ -n "$launcher" ] && break
    out=disk-$size
    unshare -rm bash -c "$(declare -f train)"'
        mics=$0 ranks="--ranks 2" launcher= preload= steps='$steps'
        mount -t tmpfs -o size='$size' none disk || exit 77
        (train disk/out) >newest.out 2>newest.err </dev/null
        status=$?
        if [ $status != 0 ]; then
            grep -q "mics: error:.*no space\|No space left" newest.err || exit 3
            mount -o remount,size=6m disk
            (train disk/out) >newest.out 2>again.err </dev/null || exit 4
        fi
        cp -r disk/out '$out "$mics"
    status=$?
    [ $status = 77 ] && echo "stops.sh: no file system can be mounted here; left out" >&2 && break
    wrong="status $status"
    [ $status != 0 ] || wrong=$(wrong_with $out newest.err)
    count "a disk of some size, then a larger one" "${wrong:-yes}" "$size: $wrong"
done
echo "| what was tried | times | held |"
echo "|---|---|---|"
for key in "${!tried[@]}"; do
    echo "| $key | ${tried[$key]} | ${held[$key]:-0} |"
done | sort
[ $broken = 0 ]
