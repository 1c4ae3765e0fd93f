#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/short.sh     what MiCS is for, in under 5 minutes: `make bench-cloud`; needs root
#
# Trains a GPT-2 shape of 13 million parameters with 4 micro-steps a step on 1 and 4 nodes x 2 ranks, zero3 (rings
# over all ranks, as elsewhere) and mics(2). The nodes share this machine's cores, so 4 of them compute a quarter as
# fast each; so that computation and links keep their proportion, the links of 4 nodes are a quarter of 1 Gbit/s
# (dilation). A machine's own speed drifts, so all this is done in rounds, each of which has its ratios; as many, up to 3, as
# end in time. Ends with one line of JSON, of medians over rounds:
#
#   zero3_tokens_per_s, mics_tokens_per_s   4 nodes, micro-batches of 4 tokens, whose computation takes about as long as
#                                           gathers that copy inside a node; of a run over all steps but the first
#   speedup                                 mics over zero3, of a round
#   weak_scaling                            mics: tokens/s of 4 nodes over that of 1, of a round, with micro-batches of 192
#                                           tokens
#   inter_bytes_counted, inter_bytes_links  sent between nodes in all runs on 4 nodes, all steps: as counted, and as
#                                           the links' counters show them
#
#   ROUNDS=3   SECONDS_MAX=270   STEPS= of each run; a few
. "$(dirname "$0")/lib.sh"
small=(run.prefetch=1 data.sequence_length=4)
large=(run.prefetch=1 data.sequence_length=64 train_micro_batch_size_per_gpu=3)

rate_of() { # STEPS SHARDING SETTING...: leaves tokens/s of a run in `rate`; counts what it sent between nodes
    train run "$2" 4 "run.steps=${STEPS:-$1}" "${@:3}"
    rate=$(median run tokens_per_s)
    if [ "$nodes" -gt 1 ]; then
        counted=$((counted + $(total run sent_inter_bytes)))
        on_links=$((on_links + $(cat "$work/run/links")))
    fi
    printf '%s on %d nodes x %d, %s: %.0f tokens/s, %.0f ms a step, %.0f ms of it waiting\n' "$2" "$nodes" \
        $per_node "${standing#* }" "$rate" "$(median run step_ms)" "$(median run exposed_comm_ms)" >&2
}

round() { # adds a line to $work/rounds
    local zero3 ours together # tokens/s
    up 4 250mbit
    rate_of 2 zero3 "${small[@]}"
    zero3=$rate
    rate_of 3 'mics(2)' "${small[@]}"
    ours=$rate
    rate_of 3 'mics(2)' "${large[@]}"
    together=$rate
    up 1 1gbit
    rate_of 5 'mics(2)' "${large[@]}"
    awk -v zero3="$zero3" -v mics="$ours" -v together="$together" -v alone="$rate" \
        'BEGIN { print zero3, mics, mics / zero3, together / alone }' >>"$work/rounds"
}

counted=0 on_links=0 longest=0
for _ in $(seq "${ROUNDS:-3}"); do
    began=$SECONDS
    [ $((began + longest * 11 / 10)) -le "${SECONDS_MAX:-270}" ] || break
    round
    longest=$((SECONDS - began > longest ? SECONDS - began : longest))
done
of() { # COLUMN: the median, the least and the most of the rounds'
    cut -d' ' -f"$1" "$work/rounds" | spread
}
read -ra speedup <<<"$(of 3)"
read -ra weak <<<"$(of 4)"
printf '%d rounds: speedup %.2f to %.2f, weak scaling %.3f to %.3f\n' "$(wc -l <"$work/rounds")" \
    "${speedup[1]}" "${speedup[2]}" "${weak[1]}" "${weak[2]}" >&2
printf '{"zero3_tokens_per_s": %.1f, "mics_tokens_per_s": %.1f, "speedup": %.3f, "weak_scaling": %.3f, ' \
    "$(of 1 | cut -d' ' -f1)" "$(of 2 | cut -d' ' -f1)" "${speedup[0]}" "${weak[0]}"
printf '"inter_bytes_counted": %.0f, "inter_bytes_links": %.0f}\n' "$counted" "$on_links"
