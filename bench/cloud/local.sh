#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/local.sh     local steps beside synchronous training on slow links, one micro-step; needs root
#
# ROUNDS rounds, each of which runs every case once, in turns; then a table of medians over rounds with their ranges. All
# nodes share this machine's cores, so N of them compute N times slower each, and links are made N times slower too
# (dilation; see weak.sh). Micro-batches are weak.sh's: those with which zero3-ring over 8 nodes at 1 Gbit/s keeps SHARE
# percent. Parts:
#
#   links    4 nodes x 2 ranks, with links of each rate of RATES: all SHARDINGS, and local steps (lib.sh: outer), whose
#            changes are int8 below 1 Gbit/s
#   weak     1, 2, 4 and 8 nodes at 1 Gbit/s: mics(2), and local steps of the longest period
#
# "apart" are as many nodes that train at once, each for itself, without a network: what synchronising costs, and nothing
# else. They are measured before and after each case, which is compared with the mean of both: a machine's speed drifts
# within minutes. Figures are means over the steps of a run without the first two and the last; those of local steps are
# whole periods. Bytes are what all ranks sent to other nodes in a step, payload. "exposed" is how long computation
# waited, and "meetings" how long for meetings and for what all islands agree on, both of the rank that waits least:
# ranks which share cores end a step at different times, and the others wait for the last as well ("rank 0").
#
# All takes some 45 minutes. No case begins after SECONDS_MAX seconds; the table is of what there is. With RESULTS a next
# call goes on.
#
#   PARTS="links weak"   ROUNDS=5   SECONDS_MAX=3300   SHARE=37, or LENGTH and SEQUENCES of a micro-batch
#   RATES="1000 100"     PERIODS="10 30"   SHARDINGS="zero3 mics(2) mics+(2)"
#   STEPS=60             counted of a run with local steps, whole periods; a sixth of them without
#   SETTINGS="key=value ..."   of the run file, for all runs
#   RESULTS=FILE         keeps figures, and takes those that it has
. "$(dirname "$0")/lib.sh"
read -ra parts <<<"${PARTS:-links weak}"
read -ra rates <<<"${RATES:-1000 100}"
read -ra periods <<<"${PERIODS:-10 30}"
read -ra shardings <<<"${SHARDINGS:-zero3 mics(2) mics+(2)}"
read -ra settings <<<"${SETTINGS:-}"
settings+=(model.config=bench/cloud/gpt2-3m.json)
steps=${STEPS:-60}
open_results "per_node $per_node share ${SHARE:-37} ${LENGTH:-}x${SEQUENCES:-} steps $steps ${settings[*]}"

# Cases of a round: "PART NODES MBIT SHARDING".
cases() {
    local part mbit nodes_of kind every
    for part in "${parts[@]}"; do
        case $part in
        links)
            for mbit in "${rates[@]}"; do
                for kind in "${shardings[@]}"; do
                    echo "links 4 $mbit $kind"
                done
                for every in "${periods[@]}"; do
                    [ "$mbit" -lt 1000 ] && echo "links 4 $mbit outer($every,int8)" || echo "links 4 $mbit outer($every)"
                done
            done
            ;;
        weak)
            for nodes_of in 1 2 4 8; do
                echo "weak $nodes_of 1000 mics(2)"
                [ "$nodes_of" = 1 ] || echo "weak $nodes_of 1000 outer(${periods[-1]})"
            done
            ;;
        *) echo "unknown part $part" >&2 && return 2 ;;
        esac
    done
}

# Steps of a run that count.
steps_of() { # SHARDING
    case $1 in 'outer('*) echo "$steps" ;; *) echo $((steps / 6 > 0 ? steps / 6 : 1)) ;; esac
}

# Over the steps that count: tokens/s, step_ms, MB that all ranks sent inter-node in a step, ms that rank 0 waited for
# meetings.
figures() { # NAME STEPS
    awk -v last=$((2 + $2)) '
        function value(key,    at) {
            at = index($0, "\"" key "\": ")
            return at ? substr($0, at + length(key) + 4) + 0 : 0
        }
        /"step_ms": / && value("step") > 2 && value("step") <= last {
            ms += value("step_ms")
            tokens += value("tokens_per_s") * value("step_ms")
            sent += value("sent_inter_bytes")
            met += value("exposed_meeting_ms")
            count++
        }
        END { printf "%.0f %.1f %.3f %.2f\n", tokens / ms, ms / count, sent / count / 1e6, met / count }
    ' "$work/$1/metrics.jsonl"
}

# Of the same steps, traced: ms that the rank waits that waits least, and of it for meetings.
least_waits() { # NAME
    local field
    for field in exposed exposed_meeting; do
        sed -n "s/^\"${field}_us_by_rank\": \[\(.*\)\],*$/\1/p" "$work/$1/trace.json" | tr -d ,
    done | awk '
        { for (rank = 1; rank <= NF; rank++) us[NR, rank] = $rank }
        END {
            for (rank = least = 1; rank <= NF; rank++)
                least = us[1, rank] < us[1, least] ? rank : least
            printf "%.1f %.2f\n", us[1, least] / 1e3, us[2, least] / 1e3
        }'
}

measure() { # NODES MBIT SHARDING
    local counted
    counted=$(steps_of "$3")
    up "$1" "$(($2 * 1000 / $1))kbit"
    train run "$3" 1 "run.steps=$((counted + 3))" run.trace_step=3 "run.trace_steps=$counted" "${settings[@]}" || return 1
    echo "$(figures run "$counted") $(least_waits run)"
}

# Tokens/s of all nodes together.
measure_apart() { # NODES
    local node counted
    counted=$(steps_of apart)
    "$cloud" down && standing=
    train_apart "$1" run "mics($per_node)" 1 "run.steps=$((counted + 3))" "${settings[@]}" || return 1
    for ((node = 0; node < $1; node++)); do
        figures "run$node" "$counted"
    done | awk '{ rate += $1 } END { print rate }'
}

# Puts the shape of a micro-batch into `settings`.
take_shape() {
    local shape="${SEQUENCES:-7} ${LENGTH:-64}"
    [ -n "${LENGTH:-}${SEQUENCES:-}" ] || shape=$(case_row shape shape_of_share 8 "${SHARE:-37}" 1000 64 "${settings[@]}")
    read -ra shape <<<"$shape"
    settings+=("train_micro_batch_size_per_gpu=${shape[0]}" "data.sequence_length=${shape[1]}")
    echo "micro-batches of ${shape[0]} x ${shape[1]} tokens"
}

time_is_left() {
    [ "$SECONDS" -lt "${SECONDS_MAX:-3300}" ]
}

# A figure that RESULTS has, or a new one while there is time.
row_of() { # KEY COMMAND...
    kept_row "$1" && return
    time_is_left || return 1
    case_row "$@"
}

# Rows "PART NODES MBIT SHARDING ROUND FIGURES APART PERCENT" in $work/rows.
run_round() { # ROUND
    local part nodes_of mbit kind row before after of='' at=0
    while read -r part nodes_of mbit kind <&3; do
        at=$((at + 1))
        if [ "$of" != "$nodes_of" ]; then
            before=$(row_of "apart $nodes_of $1 before $at" measure_apart "$nodes_of") || continue
        fi
        of=$nodes_of
        row=$(row_of "$part $nodes_of $mbit $kind $1" measure "$nodes_of" "$mbit" "$kind") ||
            { echo "$part $nodes_of $mbit $kind: left out" >&2 && continue; }
        after=$(row_of "apart $nodes_of $1 after $at" measure_apart "$nodes_of") || continue
        awk -v case="$part $nodes_of $mbit $kind $1" -v row="$row" -v before="$before" -v after="$after" 'BEGIN {
            split(row, f, " ")
            apart = (before + after) / 2
            printf "%s %s %.0f %.1f\n", case, row, apart, 100 * f[1] / apart
        }' | tee -a "$work/rows" >&2
        before=$after
    done 3< <(cases)
}

# Medians over rounds, and the range of what is kept of nodes apart.
summarise() {
    printf '\n%-6s %5s %7s %-15s %10s %10s %10s %11s %12s %10s %22s\n' part nodes Mbit/s case tokens/s step_ms \
        'MB a step' 'exposed ms' 'meetings, %' 'rank 0, %' 'of apart, %'
    awk '
        function median_of(what, key,    i, j, t, n, list) {
            n = count[key]
            for (i = 1; i <= n; i++) list[i] = value[what, key, i]
            for (i = 2; i <= n; i++)
                for (j = i; j > 1 && list[j] < list[j - 1]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
            low = list[1]; high = list[n]
            return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
        }
        {
            key = sprintf("%-6s %5s %7s %-15s", $1, $2, $3, $4)
            if (!count[key]++) keys[++cases] = key
            for (what = 6; what <= NF; what++) value[what, key, count[key]] = $what + 0
            value["rank 0", key, count[key]] = 100 * $9 / $7
            value["least", key, count[key]] = 100 * $11 / $7
        }
        END {
            for (c = 1; c <= cases; c++) {
                key = keys[c]
                kept = median_of(13, key)
                range = sprintf("%.1f (%.1f to %.1f)", kept, low, high)
                printf "%s %10.0f %10.1f %10.3f %11.1f %12.1f %10.1f %22s\n", key, median_of(6, key), median_of(7, key),
                    median_of(8, key), median_of(10, key), median_of("least", key), median_of("rank 0", key), range
            }
        }' "$work/rows"
}

grep -m 1 'model name' /proc/cpuinfo
take_shape
: >"$work/rows"
for round in $(seq "${ROUNDS:-5}"); do
    run_round "$round"
done
summarise
time_is_left || echo "the time of SECONDS_MAX is over; with RESULTS a next call measures what is missing" >&2
