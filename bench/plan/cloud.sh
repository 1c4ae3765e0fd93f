#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/cloud.sh [NODES...]     plans beside real runs on an emulated cloud; needs root
#
# For each rate of the links: `mics bench comm` and `mics bench compute` on 2 nodes x 2 ranks write a cluster file; then
# `mics plan` predicts, and `mics train` measures, steps of zero3 (in two stages), mics(2), mics+(2) and hpz(2) with 1
# and 4 micro-steps on NODES (2 4). No run that is compared was used for calibration. Ends with the median and the
# largest error of step time, the share of pairs that differ by over 3 % and are put in the right order, and
# the regret: how much slower the sharding is that the plans put first, than the fastest measured one.
#
#   RATES="1000 300"    Mbit/s   MICRO_STEPS="1 4"   STEPS=5   SECONDS_EACH=15: of the two benches
. "$(dirname "$0")/../cloud/lib.sh"
[ $# -gt 0 ] || set -- 2 4
shardings=(zero3-two-stage 'mics(2)' 'mics+(2)' 'hpz(2)')

planned() { # CLUSTER SHARDING MICRO_STEPS: step time of the run file's own plan, ms
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$1:$nodes" --precision fp32 $(sharding "$2") \
        --set gradient_accumulation_steps="$3" --set run.prefetch=1 --set run.collectives=two-stage \
        --set train_micro_batch_size_per_gpu=2 2>/dev/null |
        awk '$1 == "run" && $2 == "file" && !done { print $10; done = 1 }'
}

printf '%-6s %-6s %-6s %-16s %12s %12s %8s\n' Mbit/s nodes micro sharding measured planned error
for rate in ${RATES:-1000 300}; do
    file=$work/cluster-$rate.json
    up 2 "${rate}mbit"
    "$cloud" run -r $per_node "$mics" bench comm --threads 1 --seconds "${SECONDS_EACH:-15}" --out "$file" \
        >"$work/bench.log" 2>&1 || { tail -n 5 "$work/bench.log" >&2 && exit 1; }
    "$cloud" run -r $per_node "$mics" bench compute bench/cloud/run.json --threads 1 --seconds \
        "${SECONDS_EACH:-15}" --set train_micro_batch_size_per_gpu=2 --out "$file" >"$work/bench.log" 2>&1 ||
        { tail -n 5 "$work/bench.log" >&2 && exit 1; }
    for n in "$@"; do
        up "$n" "${rate}mbit"
        for s in ${MICRO_STEPS:-1 4}; do
            for kind in "${shardings[@]}"; do
                train run "$kind" "$s" "run.steps=${STEPS:-5}" run.prefetch=1 train_micro_batch_size_per_gpu=2
                echo "$rate $n $s $kind $(median run step_ms) $(planned "$file" "$kind" "$s")" |
                    tee -a "$work/cases" |
                    awk '{ printf "%-6s %-6s %-6s %-16s %12.1f %12.1f %7.1f%%\n", $1, $2, $3, $4, $5, $6,
                        100 * ($6 - $5) / $5 }'
            done
        done
    done
done
awk '{
        where[NR] = $1 " " $2 " " $3; measured[NR] = $5; planned[NR] = $6
        error = ($6 - $5) / $5
        if (error < 0) error = -error
        errors[NR] = error
    }
    END {
        for (i = 1; i <= NR; i++)
            for (j = i + 1; j <= NR; j++)
                if (errors[j] < errors[i]) { swap = errors[i]; errors[i] = errors[j]; errors[j] = swap }
        for (i = 1; i <= NR; i++) {
            for (j = i + 1; j <= NR; j++) {
                ratio = measured[i] / measured[j]
                if (ratio > 1.03 || ratio < 1 / 1.03) {
                    pairs++
                    right += (measured[i] > measured[j]) == (planned[i] > planned[j])
                }
            }
            group = where[i]
            if (!(group in best) || measured[i] < best[group]) best[group] = measured[i]
            if (!(group in least) || planned[i] < least[group]) { least[group] = planned[i]; got[group] = measured[i] }
        }
        for (group in best) {
            regret = got[group] / best[group] - 1
            if (regret > most) most = regret
        }
        printf "%d cases: median error %.1f %%, largest %.1f %%; %.1f %% of %d pairs in the right order; largest regret %.1f %%\n",
            NR, 100 * (NR % 2 ? errors[(NR + 1) / 2] : (errors[NR / 2] + errors[NR / 2 + 1]) / 2),
            100 * errors[NR], 100 * right / pairs, pairs, 100 * most
    }' "$work/cases"
