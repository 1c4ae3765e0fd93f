#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/plus.sh [NODES...]     mics+(2) beside mics(2); needs root
#
# Step time of both, in turns, and what a rank's optimizer state takes: 1 / r of it with r replicas.
#
#   RATE=1gbit   MICRO_STEPS=4   STEPS=6   ROUNDS=3
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || set -- 2 4
printf '%-6s %-6s %14s %14s %8s %22s\n' nodes round 'mics(2) ms' 'mics+(2) ms' ratio 'optimizer MiB, both'
for n in "$@"; do
    up "$n" "${RATE:-1gbit}"
    for round in $(seq "${ROUNDS:-3}"); do
        for kind in 'mics(2):1' 'mics+(2):1'; do
            train "${kind%:1}" "$kind" "${MICRO_STEPS:-4}" "run.steps=${STEPS:-6}" run.prefetch=2 \
                data.sequence_length=16
        done
        state=$(for kind in 'mics(2):1' 'mics+(2):1'; do
            awk '/^optimizer state/ { print $3 }' "$work/${kind%:1}.log"
        done | paste -sd' ')
        printf '%-6s %-6s %14.1f %14.1f %8.3f %22s\n' "$n" "$round" "$(median 'mics(2)' step_ms)" \
            "$(median 'mics+(2)' step_ms)" \
            "$(awk -v a="$(median 'mics+(2)' step_ms)" -v b="$(median 'mics(2)' step_ms)" 'BEGIN { print a / b }')" \
            "$state"
    done
done
