#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/weak.sh [NODES...]     weak scaling on an emulated cloud; needs root
#
# NODES (1 2 4 8) of 2 ranks with the same work a node. All nodes share this machine's cores, so N of them
# compute N times slower each; links are made N times slower too (dilation), and tokens/s of all nodes together
# would stay the same if nothing were lost. `efficiency` is that of NODES nodes over that of one. Medians
# over all steps but the first. The model has 3 million parameters, so that 16 micro-steps of zero3 over 8 nodes
# end in a minute; what counts is computation a byte, and that is the micro-batch's. Takes some 10 minutes; with
# RESULTS what was done is not done again.
#
#   RATE_MBIT=1000        of a link, before dilation
#   MICRO_STEPS="1 4 16"  SHARDINGS="zero3 mics(2) mics+(2)"  LENGTH=64 SEQUENCES=7: of a micro-batch
#   STEPS=                of a case; 6, 4 and 2 with 1, 4 and 16 micro-steps
#   PREFETCH=auto         run.prefetch
#   RESULTS=FILE          keeps rows, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra micro_steps <<<"${MICRO_STEPS:-1 4 16}"
read -ra shardings <<<"${SHARDINGS:-zero3 mics(2) mics+(2)}"
read -ra settings <<<"data.sequence_length=${LENGTH:-64} train_micro_batch_size_per_gpu=${SEQUENCES:-7}"
[ "${PREFETCH:-auto}" = auto ] || settings+=("run.prefetch=$PREFETCH")
[ $# -gt 0 ] || set -- 1 2 4 8
open_results "rate ${RATE_MBIT:-1000} per_node $per_node steps ${STEPS:-} ${settings[*]}"

measure() { # NODES MICRO_STEPS SHARDING
    train run "$3" "$2" "run.steps=${STEPS:-$(($2 >= 16 ? 2 : $2 >= 4 ? 4 : 6))}" "${settings[@]}" \
        model.config=bench/cloud/gpt2-3m.json || return 1
    printf '%-6s %-6s %-10s %12.0f %12.1f %12.1f' "$1" "$2" "$3" "$(median run tokens_per_s)" \
        "$(median run step_ms)" "$(median run exposed_comm_ms)"
}

declare -A alone
printf '%-6s %-6s %-10s %12s %12s %12s %11s\n' nodes micro sharding tokens/s step_ms exposed_ms efficiency
for n in "$@"; do
    up "$n" "$((${RATE_MBIT:-1000} / n))mbit"
    for s in "${micro_steps[@]}"; do
        for kind in "${shardings[@]}"; do
            # On one node all shardings over its two ranks are the same.
            [ "$n" != 1 ] || [ -z "${alone[$s]:-}" ] || continue
            row=$(case_row "$n $s $kind" measure "$n" "$s" "$kind")
            tokens=$(awk '{ print $4 }' <<<"$row")
            [ "$n" != 1 ] || alone[$s]=$tokens
            echo "$row $(awk -v a="$tokens" -v b="${alone[$s]:-nan}" 'BEGIN { printf "%10.1f%%", 100 * a / b }')"
        done
    done
done
