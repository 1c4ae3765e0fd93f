#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/steps.sh [NODES...]     whole training steps on an emulated cloud; needs root
#
# For each number of nodes (2 4 8) of 2 ranks: tokens/s of zero3, mics(2), mics+(2), hpz(2) and ddp at 1,
# 4 and 16 micro-steps, and how long computation waited for communication in a step. Medians over all steps
# but the first.
#
#   RATE=1gbit          of each link
#   MICRO_STEPS="1 4 16"  SHARDINGS="zero3 ..."
#   SETTINGS="key=value ..."   of the run file, for all runs
. "$(dirname "$0")/lib.sh"
read -ra micro_steps <<<"${MICRO_STEPS:-1 4 16}"
read -ra shardings <<<"${SHARDINGS:-zero3 zero3-two-stage mics(2) mics+(2) hpz(2) ddp}"
read -ra settings <<<"${SETTINGS:-}"
[ $# -gt 0 ] || set -- 2 4 8

printf '%-6s %-6s %-16s %12s %12s %12s %14s %8s\n' nodes micro sharding tokens/s step_ms exposed_ms \
    'MB_between' /zero3
for n in "$@"; do
    up "$n" "${RATE:-1gbit}"
    for s in "${micro_steps[@]}"; do
        base=
        for kind in "${shardings[@]}"; do
            train run "$kind" "$s" ${settings[@]+"${settings[@]}"}
            rate=$(median run tokens_per_s)
            [ -n "$base" ] || base=$rate
            printf '%-6s %-6s %-16s %12.0f %12.1f %12.1f %14.1f %8.2f\n' "$n" "$s" "$kind" "$rate" \
                "$(median run step_ms)" "$(median run exposed_comm_ms)" \
                "$(awk -v bytes="$(median run sent_inter_bytes)" 'BEGIN { print bytes / 1e6 }')" \
                "$(awk -v a="$rate" -v b="$base" 'BEGIN { print a / b }')"
        done
    done
done
