#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/steps.sh [NODES...]     whole training steps on an emulated cloud; needs root
#
# For each number of nodes (2 4 8) of 2 ranks: tokens/s of zero3-ring with several run.prefetch, and of zero3, mics(2),
# mics+(2), hpz(2) and ddp as the program runs them by default, at 1, 4 and 16 micro-steps; memory of a rank; and how
# long computation waited for communication in a step, in all and by kind. Medians over all steps but the first.
# `/first`: tokens/s over those of the first sharding, or of the fastest zero3-ring above it. Before, on one node, what
# a micro-step of so many tokens computes and gathers inside a node: the length is taken for which these are the nearest
# to equal, so that neither hides behind the other. Takes some 30 minutes at 1 Gbit/s; with RESULTS what was done is not done again.
#
#   RATE_MBIT=1000      of each link; DILATE=1: divided by the nodes, which share this machine's cores
#   MICRO_STEPS="1 4 16"  SHARDINGS="zero3-ring@1 ..."   names as in lib.sh
#   LENGTH=auto         tokens of a micro-batch; auto: 2, 4, 8, 16, 32 or 64
#   STEPS=              of a case; 7, 5 and 4 with 1, 4 and 16 micro-steps
#   SETTINGS="key=value ..."   of the run file, for all runs
#   RESULTS=FILE        keeps rows, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra micro_steps <<<"${MICRO_STEPS:-1 4 16}"
rivals='zero3-ring@1 zero3-ring@2 zero3-ring@4'
read -ra shardings <<<"${SHARDINGS:-$rivals zero3 mics(2):1 mics(2) mics+(2) hpz(2) ddp auto}"
read -ra settings <<<"${SETTINGS:-}"
rate=${RATE_MBIT:-1000} dilate=${DILATE:-0}
[ $# -gt 0 ] || set -- 2 4 8
open_results "rate $rate dilate $dilate per_node $per_node steps ${STEPS:-} length ${LENGTH:-auto} ${settings[*]-}"

steps_for() { # MICRO_STEPS
    echo "${STEPS:-$(($1 >= 16 ? 4 : $1 >= 4 ? 5 : 7))}"
}

measure() { # NODES MICRO_STEPS SHARDING
    train run "$3" "$2" "run.steps=$(steps_for "$2")" "data.sequence_length=$length" \
        ${settings[@]+"${settings[@]}"} || return 1
    printf '%-6s %-6s %-14s %9.0f %9.1f %8.1f %9.1f %9.1f %9.1f %9.1f %10.1f' "$1" "$2" "$3" \
        "$(median run tokens_per_s)" "$(median run step_ms)" "$(mib_of run)" "$(median run exposed_comm_ms)" \
        "$(median run exposed_gather_ms)" "$(median run exposed_reduce_ms)" "$(median run exposed_second_hop_ms)" \
        "$(awk -v bytes="$(median run sent_inter_bytes)" 'BEGIN { print bytes / 1e6 }')"
}

lengths=${LENGTH:-auto}
[ "$lengths" != auto ] || lengths="2 4 8 16 32 64"
for length in $lengths; do
    case_row "shape $length" show_shape "$length" ${settings[@]+"${settings[@]}"}
done | tee "$work/shapes"
length=$(awk '{
        for (i = 1; i <= NF; i++) if ($i == "for") ms[++count] = $(i + 1)
        apart = (ms[count - 1] > ms[count]) ? ms[count - 1] / ms[count] : ms[count] / ms[count - 1]
        if (!best || apart < best) {
            best = apart
            tokens = $3
        }
    } END { print tokens }' "$work/shapes")
echo "micro-batches of $length tokens"
printf '%-6s %-6s %-14s %9s %9s %8s %9s %9s %9s %9s %10s %7s\n' nodes micro sharding tokens/s step_ms MiB exposed \
    'of:gather' reduce 2nd_hop MB_between /first
for n in "$@"; do
    up "$n" "$((dilate ? rate / n : rate))mbit"
    for s in "${micro_steps[@]}"; do
        base=
        for kind in "${shardings[@]}"; do
            row=$(case_row "$n $s $kind" measure "$n" "$s" "$kind")
            tokens=$(awk '{ print $4 }' <<<"$row")
            case $kind in
            zero3-ring*) base=$(printf '%s\n' "$tokens" "$base" | sort -g | tail -n 1) ;;
            *) base=${base:-$tokens} ;;
            esac
            echo "$row $(awk -v a="$tokens" -v b="$base" 'BEGIN { printf "%7.2f", a / b }')"
        done
    done
done
