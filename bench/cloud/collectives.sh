#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/collectives.sh [NODES...]     collectives on an emulated cloud; needs root
#
# All-gather and reduce-scatter of 8, 32, 128 MiB over NODES (2 4 8) x 2 ranks: time of one and bytes over all
# links, by rings, in two stages, and by MPI's own. `link` is the share of the time that the links need for
# the least bytes: (p - k) / p of the buffer out of each node.
#
#   RATE_MBIT=1000      of each link
#   MIB="8 32 128"      REPEATS=9
. "$(dirname "$0")/lib.sh"
bench=$(dirname "$mics")/bench/collectives
[ -x "$bench" ] || { echo "no $bench; build first: make" >&2; exit 1; }
rate=${RATE_MBIT:-1000} repeats=${REPEATS:-9}
[ $# -gt 0 ] || set -- 2 4 8

printf '%-6s %-7s %5s %-10s %10s %12s %7s\n' nodes what MiB algorithm ms MB_links link
for n in "$@"; do
    up "$n" "${rate}mbit"
    for what in gather reduce; do
        for mib in ${MIB:-8 32 128}; do
            for algorithm in ring two-stage mpi; do
                # Waiting inside MPI wants to yield where ranks outnumber cores; ours waits by itself.
                "$cloud" reset
                ms=$(OMPI_MCA_mpi_yield_when_idle=1 "$cloud" run -r $per_node "$bench" $what \
                    $algorithm "$mib" "$repeats" 2>/dev/null)
                bytes=$("$cloud" stats --json | sed 's/.*"sent_bytes": \([0-9]*\)}$/\1/')
                awk -v n="$n" -v k=$per_node -v what=$what -v mib="$mib" -v how=$algorithm -v ms="$ms" \
                    -v bytes="$bytes" -v rate="$rate" -v repeats="$repeats" 'BEGIN {
                        least = (n * k - k) / (n * k) * mib * 1048576 * 8 / (rate * 1e3)
                        printf "%-6s %-7s %5s %-10s %10.1f %12.1f %6.0f%%\n", n, what, mib, how, ms,
                            bytes / repeats / 1e6, 100 * least / ms
                    }'
            done
        done
    done
done
