#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/cloud.sh [RATE:NODES ...]     plans beside real runs on an emulated cloud; needs root
#
# For each RATE (Mbit/s) of the links: `mics bench comm`, on as many nodes as that rate's largest run, and
# `mics bench compute`, on two, write a cluster file; then `mics train` measures, and `mics plan` predicts, steps on each of
# its NODES (as in 1000:1,2,4,8 300:2,4, the default: 68 cases, some 30 minutes) with 1 and 4 micro-steps: zero3, mics(2),
# mics+(2) and hpz(2), one micro-batch after the other and all of a step in flight; on one node, where those are the
# same, ddp, zero1, zero2 and zero3. Collectives are in two stages.
# What is under way, and since when, is said on standard error.
#
# Calibration is what the two benches measure, messages and ops; no training step over links is in it, so that all cases
# are reported. Ends with the median and the largest error of step time, the share of pairs that
# differ by over 3 % and are put in the right order, and the regret: how much slower the sharding is
# that the plans put first, than the fastest measured one. Cases are compared within a rate.
#
#   MICRO_STEPS="1 4"   STEPS=5: three times as many on one node, where they are short   SECONDS_EACH=20: of the two benches
#   RESULTS=FILE        keeps measured steps there, and cluster files in FILE.RATE.json, and takes those that are there;
#                       plans are made anew
. "$(dirname "$0")/../cloud/lib.sh"
[ $# -gt 0 ] || set -- 1000:1,2,4,8 300:2,4
read -ra micro_steps <<<"${MICRO_STEPS:-1 4}"
seconds=${SECONDS_EACH:-20} steps=${STEPS:-5}
open_results "per_node $per_node steps $steps seconds $seconds"

shardings() { # NODES MICRO_STEPS: prints those that differ, one a line
    if [ "$1" -eq 1 ]; then
        printf '%s\n' ddp:1 zero1:1 zero2:1 zero3:1
    else
        printf '%s\n' zero3:1 'mics(2):1' 'mics+(2):1' 'hpz(2):1'
        [ "$2" -eq 1 ] || printf '%s\n' "zero3:$2" "mics(2):$2" "mics+(2):$2" "hpz(2):$2"
    fi
}

count_cases() { # RATE:NODES...
    local rate_nodes n s cases=0 counts
    for rate_nodes in "$@"; do
        IFS=, read -r -a counts <<<"${rate_nodes#*:}"
        for n in "${counts[@]}"; do
            for s in "${micro_steps[@]}"; do
                cases=$((cases + $(shardings "$n" "$s" | wc -l)))
            done
        done
    done
    echo $cases
}

say() { # WORDS...
    printf 'case %d of %d, after %d:%02d: %s\n' $((done_cases + 1)) "$cases" $((SECONDS / 60)) $((SECONDS % 60)) "$*" >&2
}

planned() { # CLUSTER SHARDING MICRO_STEPS: step time of the run file's own plan, ms
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$1:$nodes" --precision fp32 --json $(settings_of "$2") \
        --set gradient_accumulation_steps="$3" --set run.prefetch=1 --set run.collectives=two-stage \
        --set train_micro_batch_size_per_gpu=2 2>/dev/null |
        grep '^ *"run_file"' | grep -o '"step_ms": [0-9.]*' | head -n 1 | sed 's/.*: //'
}

bench() { # KIND NODES RATE ARGUMENTS...
    say "$3 Mbit/s: mics bench $1 on $2 nodes"
    up "$2" "${3}mbit"
    "$cloud" run -r $per_node "$mics" bench "$1" "${@:4}" --threads 1 --seconds "$seconds" >"$work/bench.log" 2>&1 ||
        { tail -n 5 "$work/bench.log" >&2 && return 1; }
}

calibrate() { # RATE FILE MOST_NODES: the cluster file, unless it is there
    local new=$2.new.json
    kept_row "cluster $1 $3" >/dev/null && [ -s "$2" ] && return 0
    rm -f "$new"
    bench compute 2 "$1" bench/cloud/run.json --set train_micro_batch_size_per_gpu=2 --out "$new" || return 1
    bench comm "$(($3 > 2 ? $3 : 2))" "$1" --out "$new" || return 1
    sed -n '/^[0-9].*nodes\{0,1\} of/,/^collective/p' "$work/bench.log"
    mv "$new" "$2"
    case_row "cluster $1 $3" echo "$2" >/dev/null
}

measure() { # RATE NODES MICRO_STEPS SHARDING: prints the step time, ms
    say "$1 Mbit/s, $2 nodes, $3 micro-steps, $4"
    train run "$4" "$3" "run.steps=$(($2 == 1 ? 3 * steps : steps))" run.prefetch=1 run.collectives=two-stage \
        train_micro_batch_size_per_gpu=2 || return 1
    median run step_ms
}

cases=$(count_cases "$@") done_cases=0 SECONDS=0
printf '%-6s %-6s %-6s %-16s %12s %12s %8s\n' Mbit/s nodes micro sharding measured planned error
for rate_nodes in "$@"; do
    rate=${rate_nodes%%:*} file=${results:-$work/cluster}.${rate_nodes%%:*}.json
    IFS=, read -r -a counts <<<"${rate_nodes#*:}"
    calibrate "$rate" "$file" "$(printf '%s\n' "${counts[@]}" | sort -n | tail -n 1)"
    for n in "${counts[@]}"; do
        for s in "${micro_steps[@]}"; do
            while read -r kind <&3; do
                key="$rate $n $s $kind"
                kept_row "$key" >/dev/null || up "$n" "${rate}mbit"
                nodes=$n ranks=$((n * per_node))
                step_ms=$(case_row "$key" measure "$rate" "$n" "$s" "$kind")
                echo "$key $step_ms $(planned "$file" "$kind" "$s")" |
                    tee -a "$work/cases" |
                    awk '{ printf "%-6s %-6s %-6s %-16s %12.1f %12.1f %7.1f%%\n", $1, $2, $3, $4, $5, $6,
                        100 * ($6 - $5) / $5 }'
                done_cases=$((done_cases + 1))
            done 3< <(shardings "$n" "$s")
        done
    done
done
awk -f bench/plan/errors.awk "$work/cases"
