#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/weak.sh [NODES...]     weak scaling on an emulated cloud; needs root
#
# NODES (2 4 8) of 2 ranks with the same work a node. All nodes share this machine's cores, so N of them compute N times
# slower each; links are made N times slower too (dilation), and tokens/s of all nodes together would stay the same
# if nothing were lost. Two efficiencies:
#
#   alone   tokens/s over those of one node with the machine to itself. Its caches are then its own too, which they are
#           not among N nodes of one machine, but would be among N machines.
#   apart   tokens/s over those of N nodes that train at once, each for itself, without a network: what synchronising
#           costs, and nothing else.
#
# A machine's speed drifts within minutes, so all are measured in turns, ROUNDS times; each efficiency is of one round,
# and the table at the end has their medians and ranges. Rows are medians over all steps but the first. The model has 3
# million parameters, so that 16 micro-steps of zero3 over 8 nodes end in a minute; what counts is computation a byte,
# and that is the micro-batch's. A round of 8 nodes takes some 8 minutes; with RESULTS what was done is not done again.
#
#   RATE_MBIT=1000        of a link, before dilation
#   ROUNDS=3
#   MICRO_STEPS="1 4 16"  SHARDINGS="zero3 mics(2) mics+(2) mics(2):4 mics+(2):4"
#   LENGTH=64 SEQUENCES=7: of a micro-batch
#   STEPS=                of a case; 6, 4 and 3 with 1, 4 and 16 micro-steps, and more where they are short
#   SETTINGS="key=value ..."   of the run file, for all runs
#   RESULTS=FILE          keeps rows, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra micro_steps <<<"${MICRO_STEPS:-1 4 16}"
read -ra shardings <<<"${SHARDINGS:-zero3 mics(2) mics+(2) mics(2):4 mics+(2):4}"
read -ra settings <<<"data.sequence_length=${LENGTH:-64} train_micro_batch_size_per_gpu=${SEQUENCES:-7} ${SETTINGS:-}"
settings+=(model.config=bench/cloud/gpt2-3m.json)
[ $# -gt 0 ] || set -- 2 4 8
open_results "rate ${RATE_MBIT:-1000} per_node $per_node steps ${STEPS:-} ${settings[*]}"

steps_for() { # MICRO_STEPS NODES
    local steps=${STEPS:-$(($1 >= 16 ? 3 : $1 >= 4 ? 4 : 6))}
    echo $(($2 > 1 ? steps : 2 * steps))
}

# Figures of cases: tokens/s, step_ms, exposed_ms.
figures() { # NAME
    echo "$(median "$1" tokens_per_s) $(median "$1" step_ms) $(median "$1" exposed_comm_ms)"
}

measure() { # NODES MICRO_STEPS SHARDING
    up "$1" "$((${RATE_MBIT:-1000} / $1))mbit"
    train run "$3" "$2" "run.steps=$(steps_for "$2" "$1")" "${settings[@]}" && figures run
}

measure_apart() { # NODES MICRO_STEPS
    local node
    "$cloud" down && standing=
    train_apart "$1" run "mics($per_node)" "$2" "run.steps=$(steps_for "$2" "$1")" "${settings[@]}" || return 1
    for ((node = 0; node < $1; node++)); do
        figures "run$node"
    done | awk '{ rate += $1; step += $2 / NR0; exposed += $3 / NR0 } END { print rate, step, exposed }' NR0="$1"
}

row() { # NODES MICRO_STEPS WHAT ROUND FIGURES
    awk -v n="$1" -v s="$2" -v what="$3" -v round="$4" -v figures="$5" -v alone="${alone:-}" -v apart="${apart:-}" 'BEGIN {
        split(figures, f, " ")
        printf "%-6s %-6s %-10s %5s %12.0f %12.1f %12.1f", n, s, what, round, f[1], f[2], f[3]
        if (apart != "") printf " %8.1f%% %8.1f%%", 100 * f[1] / alone, 100 * f[1] / apart
        print ""
    }'
}

# One round of one case.
compare() { # NODES MICRO_STEPS ROUND
    local found kind alone='' apart=''
    found=$(case_row "$1 $2 alone $3" measure 1 "$2" "mics($per_node)")
    row "$1" "$2" alone "$3" "$found"
    alone=${found%% *}
    found=$(case_row "$1 $2 apart $3" measure_apart "$1" "$2")
    row "$1" "$2" apart "$3" "$found"
    apart=${found%% *}
    for kind in "${shardings[@]}"; do
        found=$(case_row "$1 $2 $kind $3" measure "$1" "$2" "$kind")
        row "$1" "$2" "$kind" "$3" "$found"
    done
}

# Medians and ranges over the rounds.
summarise() {
    printf '\n%-6s %-6s %-10s %12s %12s %12s %22s %22s\n' nodes micro sharding tokens/s step_ms exposed_ms \
        'of alone' 'of apart'
    awk '
        function median_of(what, key,    i, j, t, n, list) {
            n = count[key]
            for (i = 1; i <= n; i++) list[i] = value[what, key, i]
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
            low = list[1]; high = list[n]
            return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
        }
        function with_range(what, key,    middle) {
            middle = median_of(what, key)
            return sprintf("%.1f%% (%.1f to %.1f)", middle, low, high)
        }
        NF >= 9 {
            key = sprintf("%-6s %-6s %-10s", $1, $2, $3)
            if (!count[key]++) keys[++cases] = key
            for (what = 5; what <= 9; what++) value[what, key, count[key]] = $what + 0
        }
        END {
            for (c = 1; c <= cases; c++)
                printf "%s %12.0f %12.1f %12.1f %22s %22s\n", keys[c], median_of(5, keys[c]), median_of(6, keys[c]),
                    median_of(7, keys[c]), with_range(8, keys[c]), with_range(9, keys[c])
        }' "$work/rows"
}

printf '%-6s %-6s %-10s %5s %12s %12s %12s %9s %9s\n' nodes micro sharding round tokens/s step_ms exposed_ms \
    'of alone' 'of apart'
for n in "$@"; do
    for s in "${micro_steps[@]}"; do
        for round in $(seq "${ROUNDS:-3}"); do
            compare "$n" "$s" "$round" | tee -a "$work/rows"
        done
    done
done
summarise
