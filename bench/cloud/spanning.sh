#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/spanning.sh     partition groups over several nodes; needs root
#
# P = G = O = 4 on 2 nodes x 2 ranks and 8 on 4 x 2: collectives in one ring and in two stages. Bytes between nodes of a
# step, as counted and over the links; two stages send (p - k) / (p - 1) of what rings do.
#
#   RATE=1gbit   MICRO_STEPS=4   STEPS=5
. "$(dirname "$0")/lib.sh"
printf '%-6s %-10s %12s %12s %14s %14s\n' nodes collective step_ms exposed_ms MB_between MB_links
for n in 2 4; do
    up "$n" "${RATE:-1gbit}"
    for how in ring two-stage; do
        train run "mics($ranks):1" "${MICRO_STEPS:-4}" "run.steps=${STEPS:-5}" run.prefetch=2 \
            "run.collectives=$how" data.sequence_length=16
        printf '%-6s %-10s %12.1f %12.1f %14.1f %14.1f\n' "$n" "$how" "$(median run step_ms)" \
            "$(median run exposed_comm_ms)" \
            "$(awk -v bytes="$(median run sent_inter_bytes)" 'BEGIN { print bytes / 1e6 }')" \
            "$(awk -v bytes="$(cat "$work/run/links")" -v steps="${STEPS:-5}" 'BEGIN { print bytes / steps / 1e6 }')"
    done
done
