#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/short.sh     what MiCS is for, in under 5 minutes: `make bench-cloud`; needs root
#
# Trains a GPT-2 shape of 13 million parameters with 4 micro-steps a step on 1 and 4 nodes x 2 ranks, zero3 (rings
# over all ranks, as elsewhere) and mics(2). The nodes share this machine's cores, so 4 of them compute a quarter as
# fast each; so that computation and links keep their proportion, the links of 4 nodes are a quarter of 1 Gbit/s
# (dilation). Ends with one line of JSON:
#
#   zero3_tokens_per_s, mics_tokens_per_s   4 nodes, micro-batches of 4 tokens, whose computation takes about as long as
#                                           gathers that copy inside a node; medians over all steps but the first, of the
#                                           better of two runs
#   speedup                                 mics over zero3
#   weak_scaling                            mics: tokens/s of 4 nodes over that of 1, with micro-batches of 192 tokens
#   inter_bytes_counted, inter_bytes_links  sent between nodes in the runs on 4 nodes, all steps: as counted, and as
#                                           the links' counters show them
. "$(dirname "$0")/lib.sh"
small=(run.steps=3 run.prefetch=1 data.sequence_length=4)
large=(run.steps=4 run.prefetch=1 data.sequence_length=64 train_micro_batch_size_per_gpu=3)

best() { # SHARDING SETTING...: tokens/s of the better of two runs
    local round rate most=0
    for round in 1 2; do
        train run "$1" 4 "${@:2}"
        rate=$(median run tokens_per_s)
        most=$(awk -v a="$rate" -v b="$most" 'BEGIN { print (a > b ? a : b) }')
        echo $(($(cat "$work/counted") + $(total run sent_inter_bytes))) >"$work/counted"
        echo $(($(cat "$work/on_links") + $(cat "$work/run/links"))) >"$work/on_links"
        printf '%s on %d nodes x %d, %s: %.0f tokens/s, %.0f ms a step, %.0f ms of it waiting\n' "$1" "$nodes" \
            $per_node "${standing#* }" "$rate" "$(median run step_ms)" "$(median run exposed_comm_ms)" >&2
    done
    echo "$most"
}

echo 0 >"$work/counted" && echo 0 >"$work/on_links"
up 4 250mbit
zero3=$(best zero3 "${small[@]}")
mics_rate=$(best 'mics(2)' "${small[@]}")
together=$(best 'mics(2)' "${large[@]}")
counted=$(cat "$work/counted") on_links=$(cat "$work/on_links")
up 1 1gbit
alone=$(best 'mics(2)' "${large[@]}")
awk -v zero3="$zero3" -v mics="$mics_rate" -v together="$together" -v alone="$alone" -v counted="$counted" \
    -v links="$on_links" 'BEGIN {
        printf "{\"zero3_tokens_per_s\": %.1f, \"mics_tokens_per_s\": %.1f, \"speedup\": %.3f, " \
            "\"weak_scaling\": %.3f, \"inter_bytes_counted\": %.0f, \"inter_bytes_links\": %.0f}\n",
            zero3, mics, mics / zero3, together / alone, counted, links
    }'
