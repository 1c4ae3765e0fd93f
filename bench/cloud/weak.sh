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
#   of alone   tokens/s over those of one node with the machine to itself. Its caches are then its own too, which they
#              are not among N nodes of one machine, but would be among N machines.
#   of apart   that over the same of N nodes that train at once, each for itself, without a network ("apart" in the
#              table): what synchronising costs, and nothing else.
#
# What counts is computation a byte, and that is the micro-batch's; so it is made as large as leaves ZeRO-3 SHARE percent,
# by short runs of it and of one node, with the run.prefetch of 1, 2 and 4 that is the fastest. zero3-ring has that
# below; the others have what the program takes by default. The model has 3 million parameters, so that 16 micro-steps
# of zero3 over 8 nodes end in half a minute.
#
# A machine's speed drifts within minutes. One node is measured before and after each case, which is compared with the
# mean of both; all cases are measured ROUNDS times in turns, and the table at the end has medians and ranges.
# Rows are medians over steps (median of lib.sh). A round of 8 nodes with 16 micro-steps takes some 10 minutes; with
# RESULTS what was done is not done again.
#
#   RATE_MBIT=1000        of a link, before dilation
#   ROUNDS=3
#   MICRO_STEPS="1 4 16"  SHARDINGS="zero3-ring zero3 mics(2):1 mics(2) mics+(2) auto"
#   SHARE=37              or LENGTH and SEQUENCES of a micro-batch, and PREFETCH=2 of zero3-ring
#   STEPS=                of a case; 7, 5 and 4 with 1, 4 and 16 micro-steps, and more where they are short
#   SETTINGS="key=value ..."   of the run file, for all runs
#   RESULTS=FILE          keeps figures, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra micro_steps <<<"${MICRO_STEPS:-1 4 16}"
read -ra shardings <<<"${SHARDINGS:-zero3-ring zero3 mics(2):1 mics(2) mics+(2) auto}"
read -ra settings <<<"${SETTINGS:-}"
settings+=(model.config=bench/cloud/gpt2-3m.json)
positions=64
[ $# -gt 0 ] || set -- 2 4 8
open_results "rate ${RATE_MBIT:-1000} per_node $per_node steps ${STEPS:-} share ${SHARE:-37} ${LENGTH:-}x${SEQUENCES:-}" \
    "${PREFETCH:-} ${settings[*]}"

steps_for() { # MICRO_STEPS NODES
    local steps=${STEPS:-$(($1 >= 16 ? 4 : $1 >= 4 ? 5 : 7))}
    echo $(($2 > 1 ? steps : 2 * steps))
}

# Figures of a run: tokens/s, step_ms, exposed_ms, MiB of rank 0.
figures() { # NAME
    echo "$(median "$1" tokens_per_s) $(median "$1" step_ms) $(median "$1" exposed_comm_ms) $(mib_of "$1")"
}

measure() { # NODES MICRO_STEPS SHARDING
    up "$1" "$((${RATE_MBIT:-1000} / $1))mbit"
    local kind=$3
    [ "$kind" != zero3-ring ] || kind=zero3-ring@$units
    train run "$kind" "$2" "run.steps=$(steps_for "$2" "$1")" "${settings[@]}" && figures run
}

measure_apart() { # NODES MICRO_STEPS
    local node
    "$cloud" down && standing=
    train_apart "$1" run "mics($per_node)" "$2" "run.steps=$(steps_for "$2" "$1")" "${settings[@]}" || return 1
    for ((node = 0; node < $1; node++)); do
        figures "run$node"
    done | awk '{ rate += $1; step += $2; exposed += $3; mib = $4 } END { print rate, step / NR, exposed / NR, mib }'
}

# Leaves the shape in `settings`, and what zero3-ring gathers ahead in `units`.
take_shape() { # NODES
    local shape
    shape="${SEQUENCES:-7} ${LENGTH:-$positions} ${PREFETCH:-2}"
    [ -n "${LENGTH:-}${SEQUENCES:-}" ] ||
        shape=$(case_row shape shape_of_share "$1" "${SHARE:-37}" "${RATE_MBIT:-1000}" $positions "${settings[@]}")
    read -ra shape <<<"$shape"
    settings+=("train_micro_batch_size_per_gpu=${shape[0]}" "data.sequence_length=${shape[1]}") units=${shape[2]}
    echo "micro-batches of ${shape[0]} x ${shape[1]} tokens; zero3-ring gathers $units ahead"
}

# One round: each case between two runs of one node.
compare() { # NODES MICRO_STEPS ROUND
    local found kind before after apart='' at=0
    before=$(case_row "$1 $2 alone $3.$at" measure 1 "$2" "mics($per_node)")
    for kind in apart "${shardings[@]}"; do
        if [ "$kind" = apart ]; then
            found=$(case_row "$1 $2 apart $3" measure_apart "$1" "$2")
        else
            found=$(case_row "$1 $2 $kind $3" measure "$1" "$2" "$kind")
        fi
        at=$((at + 1))
        after=$(case_row "$1 $2 alone $3.$at" measure 1 "$2" "mics($per_node)")
        awk -v n="$1" -v s="$2" -v what="$kind" -v round="$3" -v figures="$found" -v before="$before" -v after="$after" \
            -v apart="${apart:-0}" 'BEGIN {
            split(figures, f, " "); split(before, b, " "); split(after, a, " ")
            alone = (b[1] + a[1]) / 2
            if (apart == 0) apart = f[1] / alone
            printf "%-6s %-6s %-11s %5s %12.0f %12.1f %12.1f %8.1f %12.0f %8.1f%% %8.1f%%\n", n, s, what, round, f[1], f[2],
                f[3], f[4], alone, 100 * f[1] / alone, 100 * f[1] / alone / apart
        }' | tee "$work/row"
        [ -n "$apart" ] || apart=$(awk '{ print $10 / 100 }' "$work/row")
        before=$after
    done
}

# Medians and ranges over the rounds.
summarise() {
    printf '\n%-6s %-6s %-11s %10s %10s %10s %8s %22s %22s\n' nodes micro sharding tokens/s step_ms exposed_ms MiB \
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
        {
            key = sprintf("%-6s %-6s %-11s", $1, $2, $3)
            if (!count[key]++) keys[++cases] = key
            for (what = 5; what <= 11; what++) value[what, key, count[key]] = $what + 0
        }
        END {
            for (c = 1; c <= cases; c++)
                printf "%s %10.0f %10.1f %10.1f %8.1f %22s %22s\n", keys[c], median_of(5, keys[c]), median_of(6, keys[c]),
                    median_of(7, keys[c]), median_of(8, keys[c]), with_range(10, keys[c]), with_range(11, keys[c])
        }' "$work/rows"
}

take_shape "${@: -1}"
printf '%-6s %-6s %-11s %5s %12s %12s %12s %8s %12s %9s %9s\n' nodes micro sharding round tokens/s step_ms exposed_ms \
    MiB alone 'of alone' 'of apart'
for n in "$@"; do
    for s in "${micro_steps[@]}"; do
        for round in $(seq "${ROUNDS:-3}"); do
            compare "$n" "$s" "$round" | tee -a "$work/rows"
        done
    done
done
summarise
