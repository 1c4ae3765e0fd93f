#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/short.sh     what MiCS is for, in under 5 minutes: `make bench-cloud`; needs root
#
# Trains a GPT-2 shape of 13 million parameters with 4 micro-steps a step on 1 and 4 nodes x 2 ranks: mics(2) with all
# else at its default, and ZeRO-3 as other systems run it, a micro-step at a time in rings over all ranks, with the
# fastest run.prefetch of 1, 2 and 4, which short runs find first. The nodes share this machine's cores, so 4 of them
# compute a quarter as fast each; so that computation and links keep their proportion, the links of 4 nodes are a
# quarter of 1 Gbit/s (dilation). A machine's own speed drifts, so all this is done in rounds, each of which has its
# ratios; as many, up to 5, as end in time. Ends with one line of JSON, of medians over rounds:
#
#   zero3_tokens_per_s, mics_tokens_per_s   4 nodes, micro-batches of 4 tokens, whose computation takes about as long as
#                                           gathers that copy inside a node; of a run over its steps (lib.sh)
#   zero3_memory_bytes, mics_memory_bytes   peak of a rank there
#   zero3_prefetch                          the run.prefetch that was the fastest
#   speedup                                 mics over zero3, of a round
#   weak_scaling                            mics: tokens/s of 4 nodes over that of 1, of a round, with micro-batches
#                                           of 192 tokens
#   second_hop_exposed_ms                   what mics waited for the second hop there, on the rank that waits least
#   second_hop_bound_ms                     the least that can be had of it: max(0, time on the link - computation), and
#                                           the largest unit's time on the link
#   inter_bytes_counted, inter_bytes_links  sent between nodes in all runs of the rounds on 4 nodes, all steps: as
#                                           counted, and as the links' counters show them
#
#   ROUNDS=5   STEPS= of each run; a few
#   SECONDS_MAX=240     no round begins that would end later; `make bench-cloud` sets what its build left of 285
. "$(dirname "$0")/lib.sh"
small=(data.sequence_length=4)
large=(data.sequence_length=64 train_micro_batch_size_per_gpu=3)
mbit=250

run() { # STEPS SHARDING SETTING...: leaves tokens/s of a run in `rate`, its memory in `memory`
    local steps=${STEPS:-$1}
    # shellcheck disable=SC2046
    train run "$2" 4 "run.steps=$steps" $(tracing "$steps") "${@:3}"
    rate=$(median run tokens_per_s) memory=$(median run memory_peak_bytes)
    if [ "$nodes" -gt 1 ]; then
        counted=$((counted + $(total run sent_inter_bytes)))
        on_links=$((on_links + $(cat "$work/run/links")))
    fi
    printf '%s on %d nodes x %d, %s: %.0f tokens/s, %.0f ms a step, %.0f ms of it waiting, %s MiB\n' "$2" "$nodes" \
        "$per_node" "${standing#* }" "$rate" "$(median run step_ms)" "$(median run exposed_comm_ms)" "$(mib_of run)" >&2
}

round() { # adds a line to $work/rounds
    local row # tokens/s and memory of zero3 and of mics
    up 4 ${mbit}mbit
    run 2 "zero3-ring@$prefetch" "${small[@]}"
    row="$rate $memory"
    run 4 'mics(2)' "${small[@]}"
    row+=" $rate $memory"
    run 4 'mics(2)' "${large[@]}"
    row+=" $rate $(hop_of run $mbit)"
    up 1 1gbit
    run 5 'mics(2)' "${large[@]}"
    awk -v alone="$rate" '{
        bound = ($7 > $8 ? $7 - $8 : 0) + $9
        print $1, $2, $3, $4, $3 / $1, $5 / alone, $6, bound
    }' <<<"$row" >>"$work/rounds"
}

up 4 ${mbit}mbit
prefetch=$(for units in 1 2 4; do
    train run "zero3-ring@$units" 1 run.steps=2 "${small[@]}"
    echo "$(median run step_ms) $units"
done | sort -g | head -n 1 | cut -d' ' -f2)
counted=0 on_links=0 longest=0
for _ in $(seq "${ROUNDS:-5}"); do
    began=$SECONDS
    [ $((began + longest * 11 / 10)) -le "${SECONDS_MAX:-240}" ] || break
    round
    longest=$((SECONDS - began > longest ? SECONDS - began : longest))
done
of() { # COLUMN: the median, the least and the most of the rounds'
    cut -d' ' -f"$1" "$work/rounds" | spread
}
middle() { # COLUMN: the median
    of "$1" | cut -d' ' -f1
}
read -ra speedup <<<"$(of 5)"
read -ra weak <<<"$(of 6)"
printf '%d rounds: speedup %.2f to %.2f, weak scaling %.3f to %.3f\n' "$(wc -l <"$work/rounds")" \
    "${speedup[1]}" "${speedup[2]}" "${weak[1]}" "${weak[2]}" >&2
printf '{"zero3_tokens_per_s": %.1f, "mics_tokens_per_s": %.1f, ' "$(middle 1)" "$(middle 3)"
printf '"zero3_memory_bytes": %.0f, "mics_memory_bytes": %.0f, ' "$(middle 2)" "$(middle 4)"
printf '"zero3_prefetch": %d, "speedup": %.3f, "weak_scaling": %.3f, ' "$prefetch" "${speedup[0]}" "${weak[0]}"
printf '"second_hop_exposed_ms": %.1f, "second_hop_bound_ms": %.1f, ' "$(middle 7)" "$(middle 8)"
printf '"inter_bytes_counted": %.0f, "inter_bytes_links": %.0f}\n' "$counted" "$on_links"
