#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/replace.sh     a node is taken away in mid-run and replaced by an empty one; needs root
#
# Trains a GPT-2 shape of 13 million parameters on NODES x 2 ranks with a copy in node memory every EVERY steps. Then
# all processes of the last node are killed, and its tmpfs is emptied: what joins in its place has nothing. The run is
# started again in three ways, from the same step:
#
#   memory    its checkpoints on disk are moved away first, so none can be read
#   disk      all nodes' memory is emptied, and the checkpoint is not in the page cache
#   start     a new run, for what a start takes anyway
#
# Prints for each the seconds from the command to the end of the next step, the bytes that went over links between nodes
# until then, and what processes read from disk ("read_bytes" of /proc/PID/io, summed). Losses of the run that went on from
# memory are compared with those of one that never stopped.
#
#   ROUNDS=3   NODES=2   RATE=1gbit   EVERY=4   SHARDINGS="zero3 mics(2)"
. "$(dirname "$0")/lib.sh"
every=${EVERY:-4}
last=$((${NODES:-2} - 1))

step_done() { # OUT: the newest step that is done
    sed -n '$s/^{"step": \([0-9]*\), "loss".*/\1/p' "$work/$1/metrics.jsonl" 2>/dev/null
}

of_cloud() { # prints the processes of this cloud's training
    local one
    for one in $(pgrep -x mics); do
        tr '\0' '\n' <"/proc/$one/environ" 2>/dev/null | grep -qx "CLOUD=$CLOUD" && echo "$one"
    done
    return 0
}

read_from_disk() { # bytes that all ranks have read so far
    local one sum=0
    for one in $(of_cloud); do
        sum=$((sum + $(awk '/^read_bytes/ { print $2 }' "/proc/$one/io" 2>/dev/null || echo 0)))
    done
    echo $sum
}

launch() { # OUT SHARDING SETTING...: trains in the background
    local out=$1 sharding=$2 setting command
    shift 2
    # shellcheck disable=SC2207
    command=("$mics" train bench/cloud/run.json --out "$work/$out" $(sharding "$sharding")
        --set gradient_accumulation_steps=4 --set run.memory_checkpoint_every="$every" --set run.collectives=two-stage
        --set run.keep_checkpoints=2)
    for setting in "$@"; do
        command+=(--set "$setting")
    done
    "$cloud" run -r "$per_node" "${command[@]}" >"$work/log" 2>&1 &
    job=$!
}

until_step() { # OUT STEP
    until [ "$(step_done "$1" || true)" -ge "$2" ] 2>/dev/null; do
        kill -0 $job 2>/dev/null || { tail -n 5 "$work/log" >&2 && return 1; }
        sleep 0.02
    done
}

end_job() {
    kill -KILL $(of_cloud) 2>/dev/null || true
    wait $job 2>/dev/null || true
}

lose_node() { # the last one
    "$cloud" exec "$last" bash -c 'kill -KILL -1' || true
    wait $job 2>/dev/null || true
    end_job
    "$cloud" exec "$last" bash -c 'rm -rf /dev/shm/*'
}

# Leaves in `row` seconds to the end of the next step, GB over the links, MB read from disk; waits for the run's end.
timed_start() { # OUT SHARDING NEXT_STEP SETTING...
    local began read_bytes
    # Lines of steps that are done again would be taken for them.
    sed -i "/^{\"step\": $3,/,\$d" "$work/$1/metrics.jsonl" 2>/dev/null || true
    began=$EPOCHREALTIME
    "$cloud" reset
    launch "$1" "$2" "${@:4}"
    until_step "$1" "$3"
    began=$(awk -v a="$EPOCHREALTIME" -v b="$began" 'BEGIN { printf "%.2f", a - b }')
    read_bytes=$(read_from_disk)
    row=$("$cloud" stats --json | sed 's/.*"sent_bytes": \([0-9]*\)}$/\1/' |
        awk -v s="$began" -v r="$read_bytes" '{ printf "%s %.3f %.1f\n", s, $1 / 1e9, r / 1e6 }')
    wait $job
}

resumed() { # what the run says of its start
    sed -n 's/^start  *//p' "$work/log"
}

round() { # SHARDING: adds lines to $work/rows
    local kept done row
    rm -rf "${work:?}/run" "${work:?}/new"
    launch run "$1" run.checkpoint_every="$every" run.steps=1000
    until_step run $((2 * every + 1))
    lose_node
    done=$(step_done run)
    kept=$((done / every * every))
    # A step that was done at the end of its life need not be copied yet.
    [ -d "$work/run/checkpoints/step-$(printf %08d $kept)" ] || kept=$((kept - every))
    cp -r "$work/run" "$work/saved"

    mv "$work/run/checkpoints" "$work/run/away"
    timed_start run "$1" $((kept + 1)) run.checkpoint_every=0 run.steps=$((kept + 3))
    grep -q "step $kept, resumed from node memory" "$work/log" || { resumed >&2 && return 1; }
    echo "$1 memory $row $((done - kept))" | tee -a "$work/rows" >&2
    cp "$work/run/metrics.jsonl" "$work/metrics.memory"

    rm -rf "${work:?}/run" && mv "$work/saved" "$work/run"
    for ((node = 0; node <= last; node++)); do
        "$cloud" exec $node bash -c 'rm -rf /dev/shm/*'
    done
    sync && echo 3 >/proc/sys/vm/drop_caches || true
    timed_start run "$1" $((kept + 1)) run.checkpoint_every=0 run.steps=$((kept + 3))
    grep -q "step $kept, resumed from $work" "$work/log" || { resumed >&2 && return 1; }
    echo "$1 disk $row $((done - kept))" | tee -a "$work/rows" >&2

    timed_start new "$1" 1 run.checkpoint_every=0 run.steps=$((kept + 3))
    echo "$1 start $row 0" | tee -a "$work/rows" >&2
    diff <(sed -n 's/, "lr".*//p' "$work/metrics.memory") <(sed -n 's/, "lr".*//p' "$work/new/metrics.jsonl") >&2 ||
        { echo "losses differ" >&2 && return 1; }
}

up $((last + 1)) "${RATE:-1gbit}"
for sharding in ${SHARDINGS:-zero3 mics(2)}; do
    for _ in $(seq "${ROUNDS:-3}"); do
        round "$sharding"
    done
done
printf '%-8s %-7s %12s %22s %18s %12s\n' sharding from 's to a step' 'GB between nodes' 'MB read of disk' 'steps lost'
for sharding in ${SHARDINGS:-zero3 mics(2)}; do
    for from in memory disk start; do
        awk -v a="$sharding" -v b=$from '$1 == a && $2 == b' "$work/rows" >"$work/some"
        read -ra seconds <<<"$(cut -d' ' -f3 "$work/some" | spread)"
        printf '%-8s %-7s %5.2f (%s..%s) %18s %18s %12s\n' "$sharding" $from "${seconds[@]}" \
            "$(cut -d' ' -f4 "$work/some" | spread | cut -d' ' -f1)" \
            "$(cut -d' ' -f5 "$work/some" | spread | cut -d' ' -f1)" \
            "$(cut -d' ' -f6 "$work/some" | spread | cut -d' ' -f3)"
    done
done
