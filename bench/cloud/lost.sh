#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/lost.sh     a node goes away in mid-step, and no copy was made before; needs root
#
# Trains a GPT-2 shape of 13 million parameters with mics(2) on NODES x 2 ranks, without checkpoints and without copies
# in node memory. Then all processes of the last node are killed, and its tmpfs is emptied. The others are to keep the step
# that was done last (docs/reliability.md), from which the same command resumes. Prints for each round the newest step that
# metrics name, and the one that the next start resumes from.
#
#   ROUNDS=3   NODES=2   RATE=1gbit
. "$(dirname "$0")/lib.sh"
last=$((${NODES:-2} - 1))
export OMPI_MCA_odls_base_sigkill_timeout=10 PRTE_MCA_odls_base_sigkill_timeout=10

of_cloud() { # prints the processes of this cloud's training
    local one
    for one in $(pgrep -x mics); do
        cat "/proc/$one/environ" 2>/dev/null | tr '\0' '\n' | grep -qx "CLOUD=$CLOUD" && echo "$one"
    done
    return 0
}

step_done() { # OUT: the newest step that is done
    sed -n '$s/^{"step": \([0-9]*\), "loss".*/\1/p' "$work/$1/metrics.jsonl" 2>/dev/null
}

launch() { # OUT STEPS: trains in the background
    # shellcheck disable=SC2046
    "$cloud" run -r "$per_node" "$mics" train bench/cloud/run.json --out "$work/$1" $(sharding "mics(2)") \
        --set gradient_accumulation_steps=8 --set run.checkpoint_every=0 --set run.grace_s=6 \
        --set run.steps="$2" >"$work/log" 2>&1 &
    job=$!
}

round() {
    local done again
    rm -rf "${work:?}/run"
    launch run 1000
    until [ "$(step_done run || true)" -ge 4 ] 2>/dev/null; do
        kill -0 $job 2>/dev/null || { tail -n 5 "$work/log" >&2 && return 1; }
        sleep 0.05
    done
    sleep "0.$((RANDOM % 10))"
    "$cloud" exec "$last" bash -c 'kill -KILL -1' || true
    wait $job 2>/dev/null || true
    while [ -n "$(of_cloud)" ]; do
        sleep 0.1
    done
    "$cloud" exec "$last" bash -c 'rm -rf /dev/shm/*'
    done=$(step_done run)
    grep "in node memory" "$work/log" | head -n 1 >&2 || true
    launch run $((done + 2))
    wait $job || { tail -n 5 "$work/log" >&2 && return 1; }
    again=$(sed -n 's/^start  *step \([0-9]*\), resumed from node memory.*/\1/p' "$work/log")
    echo "done $done resumed ${again:-nowhere}"
}

up $((last + 1)) "${RATE:-1gbit}"
for _ in $(seq "${ROUNDS:-3}"); do
    round
done
