#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/cloud.sh [RATE:NODES ...]     plans beside real runs on an emulated cloud; needs root
#
# For each RATE (Mbit/s) of the links: `mics bench comm`, on as many nodes as that rate's largest run, and
# `mics bench compute`, on two, write a cluster file; then `mics plan` predicts, and `mics train` measures, steps on each of
# its NODES (as in 1000:1,2,4,8 300:2,4, the default: 48 cases, some 20 minutes) with 1 and 4 micro-steps: zero3 in
# two stages, mics(2), mics+(2) and hpz(2); on one node, where those are the same, ddp, zero1, zero2 and zero3.
#
# Calibration is what the two benches measure, messages and ops; no training step over links is in it, so that all cases
# are reported. Ends with the median and the largest error of step time, the share of pairs that
# differ by over 3 % and are put in the right order, and the regret: how much slower the sharding is
# that the plans put first, than the fastest measured one. Cases are compared within a rate.
#
#   MICRO_STEPS="1 4"   STEPS=4   SECONDS_EACH=20: of the two benches   CASES=FILE: keeps the cases there
. "$(dirname "$0")/../cloud/lib.sh"
[ $# -gt 0 ] || set -- 1000:1,2,4,8 300:2,4
cases=${CASES:-$work/cases}
: >"$cases"

shardings() { # prints those that differ on the standing cloud, one a line
    if [ "$nodes" -eq 1 ]; then
        printf '%s\n' ddp zero1 zero2 zero3-two-stage
    else
        printf '%s\n' zero3-two-stage 'mics(2)' 'mics+(2)' 'hpz(2)'
    fi
}

planned() { # CLUSTER SHARDING MICRO_STEPS: step time of the run file's own plan, ms
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$1:$nodes" --precision fp32 --json $(sharding "$2") \
        --set gradient_accumulation_steps="$3" --set run.prefetch=1 --set run.collectives=two-stage \
        --set train_micro_batch_size_per_gpu=2 2>/dev/null |
        grep '^ *"run_file"' | grep -o '"step_ms": [0-9.]*' | head -n 1 | sed 's/.*: //'
}

measure() { # RATE FILE MOST_NODES: the cluster file
    local comm=(bench comm --threads 1 --seconds "${SECONDS_EACH:-20}" --out "$2")
    local compute=(bench compute bench/cloud/run.json --threads 1 --seconds "${SECONDS_EACH:-20}"
        --set train_micro_batch_size_per_gpu=2 --out "$2")
    up 2 "${1}mbit"
    "$cloud" run -r $per_node "$mics" "${compute[@]}" >"$work/bench.log" 2>&1 ||
        { tail -n 5 "$work/bench.log" >&2 && exit 1; }
    [ "$3" -lt 2 ] || up "$3" "${1}mbit"
    "$cloud" run -r $per_node "$mics" "${comm[@]}" >"$work/bench.log" 2>&1 ||
        { tail -n 5 "$work/bench.log" >&2 && exit 1; }
    sed -n '/^[0-9].*nodes\{0,1\} of/,/^collective/p' "$work/bench.log"
}

printf '%-6s %-6s %-6s %-16s %12s %12s %8s\n' Mbit/s nodes micro sharding measured planned error
for rate_nodes in "$@"; do
    rate=${rate_nodes%%:*} file=$work/cluster-${rate_nodes%%:*}.json
    IFS=, read -r -a counts <<<"${rate_nodes#*:}"
    measure "$rate" "$file" "$(printf '%s\n' "${counts[@]}" | sort -n | tail -n 1)"
    for n in "${counts[@]}"; do
        up "$n" "${rate}mbit"
        for s in ${MICRO_STEPS:-1 4}; do
            while read -r kind <&3; do
                train run "$kind" "$s" "run.steps=${STEPS:-4}" run.prefetch=1 train_micro_batch_size_per_gpu=2
                echo "$rate $n $s $kind $(median run step_ms) $(planned "$file" "$kind" "$s")" |
                    tee -a "$cases" |
                    awk '{ printf "%-6s %-6s %-6s %-16s %12.1f %12.1f %7.1f%%\n", $1, $2, $3, $4, $5, $6,
                        100 * ($6 - $5) / $5 }'
            done 3< <(shardings)
        done
    done
done
awk -f bench/plan/errors.awk "$cases"
