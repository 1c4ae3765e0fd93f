#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/overlap.sh     how well the streams overlap, from traces; needs root
#
# 2 nodes x 1 rank, so that each rank has a core of its own where there are two, and streams compete for nothing but
# that. Three traced steps each: what each stream was busy for, and the step over the ideal, which no order of the same
# collectives would beat (otherData.ideal_us of trace.json; docs/formats.md). Micro-batches of 64 to 1024 tokens: first
# the links are the busiest, then computation. `no_waits` is the ratio with each collective as short as on the rank that
# came to it last: ranks that wait for cores make the others' collectives long.
#
#   RATE=1gbit   MICRO_STEPS=4   SHARDINGS="zero3-ring ddp:1 zero1:1"   SEQUENCES="1 4 8 16": of 64 tokens
#   SETTINGS="key=value ..."     of one rank a node ddp is mics(1), and zero1 mics+(1)
export PER_NODE=${PER_NODE:-1}
. "$(dirname "$0")/lib.sh"
read -ra shardings <<<"${SHARDINGS:-zero3-ring ddp:1 zero1:1}"
read -ra settings <<<"${SETTINGS:-}"
printf '%-10s %-10s %10s %10s %10s %10s %10s %8s %8s\n' sharding sequences step_ms compute intra inter ideal \
    ratio no_waits
up 2 "${RATE:-1gbit}"
for kind in "${shardings[@]}"; do
    for sequences in ${SEQUENCES:-1 4 8 16}; do
        train run "$kind" "${MICRO_STEPS:-4}" run.steps=6 run.trace_step=3 run.trace_steps=3 run.prefetch=2 \
            "train_micro_batch_size_per_gpu=$sequences" ${settings[@]+"${settings[@]}"}
        printf '%-10s %-10s' "$kind" "$sequences"
        for field in step_us compute_busy_us intra_busy_us inter_busy_us ideal_us; do
            awk -v us="$(traced run $field)" 'BEGIN { printf " %10.1f", us / 1e3 }'
        done
        printf ' %8.2f %8.2f\n' "$(traced run overlap_ratio)" "$(traced run overlap_ratio_without_waits)"
    done
done
