#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/spanning.sh     partition groups over several nodes; needs root
#
# P = G = O = 4 on 2 nodes x 2 ranks and 8 on 4 x 2: collectives in one ring and in two stages. Bytes between nodes of a
# step, as counted and over the links; two stages send (p - k) / (p - 1) of what rings do. `planned` is what mics plan says
# of the step.
#
#   RATE=1gbit   MICRO_STEPS=4   STEPS=5   PER_NODE=2   NODES="2 4"
#   CLUSTER=FILE    a cluster file that mics bench wrote on such nodes, for `planned`; none: not planned
. "$(dirname "$0")/lib.sh"

planned() { # ALGORITHM: ms
    [ -n "${CLUSTER:-}" ] || { echo nan && return; }
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$CLUSTER:$nodes" --precision fp32 --json $(sharding "mics($ranks)") \
        --set gradient_accumulation_steps="${MICRO_STEPS:-4}" --set run.prefetch=2 --set run.collectives="$1" \
        --set data.sequence_length=16 2>/dev/null |
        grep '^ *"run_file"' | grep -o '"step_ms": [0-9.]*' | head -n 1 | sed 's/.*: //'
}

printf '%-6s %-10s %12s %12s %12s %14s %14s\n' nodes collective step_ms planned exposed_ms MB_between MB_links
for n in ${NODES:-2 4}; do
    up "$n" "${RATE:-1gbit}"
    for how in ring two-stage; do
        train run "mics($ranks):1" "${MICRO_STEPS:-4}" "run.steps=${STEPS:-5}" run.prefetch=2 \
            "run.collectives=$how" data.sequence_length=16
        printf '%-6s %-10s %12.1f %12.1f %12.1f %14.1f %14.1f\n' "$n" "$how" "$(median run step_ms)" "$(planned "$how")" \
            "$(median run exposed_comm_ms)" \
            "$(awk -v bytes="$(median run sent_inter_bytes)" 'BEGIN { print bytes / 1e6 }')" \
            "$(awk -v bytes="$(cat "$work/run/links")" -v steps="${STEPS:-5}" 'BEGIN { print bytes / steps / 1e6 }')"
    done
done
