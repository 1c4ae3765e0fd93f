#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The fault campaign: disturbs small trainings at random moments, goes on as a user would (the same
# command again), and asks whether losses and weights are those of a run that nobody disturbed.
# Prints a table of what was tried and what held; docs/reliability.md has one of a long campaign.
#
#   campaign.sh MICS [--rounds N] [--steps N] [--seed S] [--only KIND[,KIND...]] [--launcher "mpirun -n 4"]
#               [--set KEY=VALUE]...
#
# KIND: kill, stop, pause, files, disk, data; with Open MPI as launcher also lost. Bit flips in live state are tests/faults/flips, lost
# nodes bench/cloud/replace.sh, links and single ranks tests/cloud/test_cloud_watch.sh.
# KEEP=1 leaves the folder of runs behind.
set -uo pipefail
source_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mics=$(readlink -f "${1:?"usage: campaign.sh MICS [--rounds N] [--steps N] [--seed S] [--only KIND,...] [--launcher COMMAND]"}")
shift
rounds=1 steps=150 seed=1 only=kill,stop,pause,files,disk,data launcher= sets=()
while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;;
    --steps) steps=$2 ;;
    --seed) seed=$2 ;;
    --only) only=$2 ;;
    --launcher) launcher=$2 ;;
    --set) sets+=(--set "$2") ;;
    *) echo "campaign.sh: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
RANDOM=$seed
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# The small model, text and run file of the program's tests.
set -- "$mics"
# shellcheck source=../cli/lib.sh
. "$source_dir/../cli/lib.sh"
trap 'kill -9 $(jobs -p) 2>/dev/null; [ -n "${KEEP:-}" ] || rm -rf "$work"' EXIT

train() { # OUT FLAGS...: four ranks, under the launcher where one is given
    local out=$1
    shift
    # What is asked for stands behind, where it counts.
    set -- --steps "${until:-$steps}" --set run.checkpoint_every=3 --set run.validation_batches=0 \
        --set run.comm_timeout_s=60 --set run.log_every=1 ${sets[@]+"${sets[@]}"} "$@"
    if [ -n "$launcher" ]; then
        set -- $launcher "$mics" train run.json --nodes 2 --out "$out" "$@"
    else
        set -- "$mics" train run.json --ranks 4 --nodes 2 --out "$out" "$@"
    fi
    exec "$@"
}

# ---- what is tried, and whether it held ----

declare -A tried held
broken=0
count() { # KIND WHAT OK?
    local key="$1|$2"
    tried[$key]=$((${tried[$key]:-0} + 1))
    if [ "$3" = yes ]; then
        held[$key]=$((${held[$key]:-0} + 1))
    else
        broken=$((broken + 1))
        echo "campaign.sh: $1, $2: $(tail -n 3 newest.err 2>/dev/null)" >&2
    fi
}

# The last step's weights and all losses are those of the undisturbed run.
as_undisturbed() { # OUT
    losses "${reference:-straight}" >left.txt
    losses "$1" >right.txt
    cmp -s left.txt right.txt && same_end "$1"
}

same_end() { # OUT
    local last
    last=$(printf 'step-%08d' $steps)
    cat "${reference:-straight}"/checkpoints/"$last"/rank-* >left.bin
    cat "$1"/checkpoints/"$last"/rank-* >right.bin || return 1
    # A step that was saved twice has files of other names, and each names its generation nowhere else.
    cmp -s left.bin right.bin
}

# Starts a training in the background, and waits until it is past its third step.
start() { # OUT FLAGS...
    (train "$@") >newest.out 2>newest.err </dev/null &
    pid=$!
    for _ in $(seq 6000); do
        [ "$(losses "$1" 2>/dev/null | wc -l)" -gt "${begun:-3}" ] && return 0
        kill -0 $pid 2>/dev/null || return 0
        sleep 0.02
    done
}

nap() { # up to MILLISECONDS
    sleep "$(awk -v ms=$((RANDOM % $1)) 'BEGIN { print ms / 1000 }')"
}

finish() { # OUT: the same command until the run is done
    local turn
    for turn in 1 2 3; do
        (train "$1") >newest.out 2>newest.err </dev/null && return 0
        [ "$turn" = 3 ] || sleep 1
    done
    return 1
}

family() { # PID: it and all processes under it
    local child
    echo "$1"
    for child in $(pgrep -P "$1"); do
        family "$child"
    done
}

# ---- kinds ----

kill_processes() {
    local out=kill times victim whole
    for ((i = 0; i < rounds; i++)); do
        rm -rf $out
        times=$((RANDOM % 3 + 1))
        for ((k = 0; k < times; k++)); do
            start $out
            nap 400
            whole=($(family $pid))
            victim=${whole[RANDOM % ${#whole[@]}]}
            kill -9 "$victim" 2>/dev/null
            wait $pid 2>/dev/null
        done
        finish $out && as_undisturbed $out && count kill "SIGKILL of a process, and started again" yes ||
            count kill "SIGKILL of a process, and started again" no
    done
}

stop_runs() {
    local out=stop status signal
    for ((i = 0; i < rounds; i++)); do
        for signal in TERM INT HUP USR1 USR2 file; do
            rm -rf $out
            start $out
            nap 200
            if [ $signal = file ]; then
                : >$out/stop
            elif [ -n "$launcher" ]; then
                kill -$signal $(pgrep -x mics -g 0 || family $pid | tail -n +2)
            else
                kill -$signal $pid 2>/dev/null
            fi
            wait $pid
            status=$?
            # It may have come to its end before.
            if { [ $status = 75 ] || [ $status = 0 ]; } && finish $out && as_undisturbed $out; then
                count stop "asked to stop by $signal" yes
            else
                echo "status $status" >>newest.err
                count stop "asked to stop by $signal" no
            fi
        done
    done
}

# A machine that sleeps longer than the time-out; nobody is late then.
pause_runs() {
    local out=pause whole
    for ((i = 0; i < rounds; i++)); do
        rm -rf $out
        (train $out --set run.comm_timeout_s=4) >newest.out 2>newest.err </dev/null &
        pid=$!
        for _ in $(seq 6000); do
            [ "$(losses $out 2>/dev/null | wc -l)" -gt 3 ] && break
            sleep 0.02
        done
        whole=($(family $pid))
        kill -STOP "${whole[@]}"
        sleep 8
        kill -CONT "${whole[@]}"
        wait $pid && as_undisturbed $out && count pause "all ranks asleep for twice the time-out" yes ||
            count pause "all ranks asleep for twice the time-out" no
    done
}

# One damage to the newest checkpoint of a run that was stopped at step 30.
damage() { # KIND FOLDER
    local one other bytes at
    one=$2/$(ls "$2" | grep '^rank-' | shuf -n 1 --random-source=<(yes $RANDOM))
    other=$(ls "$2"/rank-* | grep -v "$one" | head -n 1)
    bytes=$(stat -c %s "$one")
    at=$(((RANDOM * 32768 + RANDOM) % bytes))
    case $1 in
    flip) printf "\\x$(printf %02x $(($(od -An -tu1 -j $at -N 1 "$one") ^ (1 << RANDOM % 8))))" |
        dd of="$one" bs=1 seek=$at conv=notrunc 2>/dev/null ;;
    truncate) truncate -s $at "$one" ;;
    zero) dd if=/dev/zero of="$one" bs=1 seek=$((at / 512 * 512)) count=512 conv=notrunc 2>/dev/null ;;
    grow) echo more >>"$one" ;;
    swap) mv "$one" swapped && mv "$other" "$one" && mv swapped "$other" ;;
    older) cp "$2/../step-00000027/${one##*/}" "$one" ;;
    missing) rm "$one" ;;
    manifest) printf '{"format": 2' >"$2/manifest.json" ;;
    no-manifest) rm "$2/manifest.json" ;;
    latest) echo step-99999999 >"$2/../latest" ;;
    esac
}

# What resumes from the step at which a run ended is held to a run that did: islands (outer) meet there.
damage_files() {
    local kind reference
    (until=30 train whole) >newest.out 2>newest.err </dev/null
    cp -r whole ended && finish ended
    for ((i = 0; i < rounds; i++)); do
        for kind in flip truncate zero grow swap older missing manifest no-manifest latest; do
            rm -rf files && cp -r whole files
            damage $kind files/checkpoints/step-00000030
            reference=straight
            [ $kind = latest ] && reference=ended
            "$mics" verify files >verified.out 2>&1
            [ $? = 1 ] && count files "$kind: mics verify" yes || count files "$kind: mics verify" no
            finish files && as_undisturbed files && count files "$kind: --resume auto" yes ||
                count files "$kind: --resume auto" no
        done
    done
}

# A disk that is full in mid-run, and has room again later. What metrics.jsonl had no room for is lost.
fill_disk() {
    mkdir -p disk
    if ! unshare -rm sh -c 'mount -t tmpfs none disk' 2>/dev/null; then
        echo "campaign.sh: disk: no file system can be mounted here; left out" >&2
        return
    fi
    for ((i = 0; i < rounds; i++)); do
        unshare -rm bash -c '
            mount -t tmpfs -o size=4m none disk
            '"$(declare -f train; declare -p sets)"'
            mics=$0 launcher="$1" steps=$2
            (train disk/out) >newest.out 2>newest.err </dev/null &
            pid=$!
            until grep -qs "\"step\": 4," disk/out/metrics.jsonl; do
                kill -0 $pid 2>/dev/null || exit 1
                sleep 0.02
            done
            dd if=/dev/zero of=disk/full bs=64k 2>/dev/null
            sleep 0.3
            rm disk/full
            # If it was full up to the end, the last save has failed, and the run is not done.
            wait $pid || (train disk/out) >newest.out 2>newest.err </dev/null || exit 1
            cp -r disk/out filled' "$mics" "$launcher" $steps &&
            same_end filled && count disk "full for a while" yes || count disk "full for a while" no
        rm -rf filled
    done
}

# A corpus that is changed while it is trained on: an error that names it, never other numbers.
change_data() {
    local kind status
    for ((i = 0; i < rounds; i++)); do
        for kind in truncated rewritten; do
            rm -rf data tokens.bin
            "$mics" tokenize text.txt --out tokens.bin >newest.out 2>&1 || return
            (until=100000 train data --set 'data.train=["tokens.bin"]' ) >newest.out 2>newest.err </dev/null &
            pid=$!
            for _ in $(seq 6000); do
                [ "$(losses data 2>/dev/null | wc -l)" -gt 3 ] && break
                sleep 0.02
            done
            if [ $kind = truncated ]; then
                truncate -s 2000 tokens.bin
            else
                dd if=/dev/urandom of=tokens.bin bs=1k seek=1 count=4 conv=notrunc 2>/dev/null
            fi
            for _ in $(seq 6000); do
                kill -0 $pid 2>/dev/null || break
                sleep 0.02
            done
            kill -9 $pid 2>/dev/null
            wait $pid
            status=$?
            [ $status -lt 128 ] && grep -q 'mics: error.*tokens.bin' newest.err && count data "corpus $kind in mid-run" yes ||
                count data "corpus $kind in mid-run" no
        done
    done
}

# One rank is killed, and the launcher gives the others time to keep the newest step in node memory. An
# update that was under way is the exception: then the copy may not come to be, and nothing else may be wrong.
lose_ranks() {
    local out=lost with="$launcher" micro=${MICRO:-80} ranks kept # micro: micro-steps
    launcher="$launcher --mca odls_base_sigkill_timeout 6"
    for ((i = 0; i < rounds; i++)); do
        rm -rf $out
        until=100000 begun=2 start $out --set run.checkpoint_every=0 --set run.grace_s=3 --set train_batch_size=$((8 * micro)) \
            --set gradient_accumulation_steps=$micro
        nap 2000
        ranks=($(family $pid | while read -r one; do [ "$(cat /proc/$one/comm)" = mics ] && echo $one; done))
        kill -9 "${ranks[RANDOM % ${#ranks[@]}]}"
        wait $pid 2>/dev/null
        kept=$(sed -n 's/.*step \([0-9]*\) is in node memory: .* of 4 ranks.*/\1/p' newest.err)
        [ "${kept:-0}" -ge "$(($(losses $out | wc -l) - 1))" ] &&
            count lost "a rank killed: the newest step is kept" yes ||
            count lost "a rank killed: the newest step is kept" no
        (until=$((${kept:-0} + 3)) train $out --set train_batch_size=$((8 * micro)) \
            --set gradient_accumulation_steps=$micro) >newest.out 2>newest.err </dev/null &&
            grep -q "resumed from node memory" newest.out &&
            count lost "the next start resumes from it" yes || count lost "the next start resumes from it" no
    done
    launcher=$with
}

# ---- the campaign ----

(train straight) >newest.out 2>newest.err </dev/null || fail "the undisturbed run fails: $(cat newest.err)"
for kind in ${only//,/ }; do
    case $kind in
    kill) kill_processes ;;
    stop) stop_runs ;;
    pause) pause_runs ;;
    files) damage_files ;;
    disk) fill_disk ;;
    data) change_data ;;
    lost) lose_ranks ;;
    *) echo "campaign.sh: unknown kind $kind" >&2 && exit 2 ;;
    esac
done
echo "| kind | what was tried | times | held |"
echo "|---|---|---|---|"
for key in "${!tried[@]}"; do
    echo "| ${key%%|*} | ${key#*|} | ${tried[$key]} | ${held[$key]:-0} |"
done | sort
[ $broken = 0 ]
