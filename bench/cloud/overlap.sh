#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/overlap.sh [NODES...]     how well streams overlap, from traces; needs root
#
# One traced step each: what each stream was busy for, and the step over the ideal, which is the busiest stream plus
# the first gather and the last reduction (otherData.overlap_ratio of trace.json).
#
#   RATE=1gbit   MICRO_STEPS=4   SHARDINGS="zero3-two-stage mics(2) mics+(2)"   SETTINGS="key=value ..."
. "$(dirname "$0")/lib.sh"
read -ra shardings <<<"${SHARDINGS:-zero3-two-stage mics(2) mics+(2)}"
read -ra settings <<<"${SETTINGS:-}"
[ $# -gt 0 ] || set -- 2 4
printf '%-6s %-16s %10s %10s %10s %10s %10s %8s\n' nodes sharding step_ms compute near far ideal ratio
for n in "$@"; do
    up "$n" "${RATE:-1gbit}"
    for kind in "${shardings[@]}"; do
        train run "$kind" "${MICRO_STEPS:-4}" run.steps=5 run.trace_step=3 run.trace_steps=2 run.prefetch=2 \
            run.collectives=two-stage ${settings[@]+"${settings[@]}"}
        printf '%-6s %-16s' "$n" "$kind"
        for field in step_us compute_busy_us near_busy_us far_busy_us ideal_us; do
            awk -v us="$(traced run $field)" 'BEGIN { printf " %10.1f", us / 1e3 }'
        done
        printf ' %8.2f\n' "$(traced run overlap_ratio)"
    done
done
