#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/collectives.sh [NODES...]     collectives on an emulated cloud; needs root
#
# All-gather and reduce-scatter of 8, 32, 128 MiB over NODES (2 4 8) x 2 ranks: time of one and bytes over all
# links, by rings, in two stages, by MPI's own, and how far two stages, which a run takes, are behind the best of
# them. `link` is the share of the time that the links need for the least bytes: (p - k) / p of the buffer out of each
# node. Ends with the two worst figures of two stages: behind the best, and of the link at 32 MiB and above.
#
#   RATE_MBIT=1000      of each link
#   MIB="8 32 128"      WHAT="gather reduce"
#   REPEATS=9           at most; as many as SECONDS_EACH=2 allow, but at least 3
#   ROUNDS=2            of rings and two stages, in turns; the better counts. MPI's own runs once
#   SECONDS_MAX=1200    sizes that would begin later are left out, and named
#   JSON=FILE           a line of JSON for each row
. "$(dirname "$0")/lib.sh"
bench=$(dirname "$mics")/bench/collectives
[ -x "$bench" ] || { echo "no $bench; build first: make" >&2; exit 1; }
rate=${RATE_MBIT:-1000} repeats=${REPEATS:-9} each=${SECONDS_EACH:-2} json=${JSON:-/dev/null}
[ $# -gt 0 ] || set -- 2 4 8
: >"$work/worst"
: >"$json"

row() { # NODES WHAT MIB ALGORITHM MS MB_LINKS NOTE BEST_MS
    awk -v n="$1" -v k=$per_node -v what="$2" -v mib="$3" -v how="$4" -v ms="$5" -v mb="$6" -v note="$7" \
        -v best="$8" -v rate="$rate" -v json="$json" -v worst="$work/worst" 'BEGIN {
            least = (n * k - k) / (n * k) * mib * 1048576 * 8 / (rate * 1e3)
            printf "%-6s %-7s %5s %-10s %10.1f %12.1f %6.0f%%  %s\n", n, what, mib, how, ms, mb, 100 * least / ms, note
            behind = (best > 0) ? ms / best - 1 : 0
            extra = (best > 0) ? sprintf(", \"behind_best\": %.4f, \"chosen\": \"%s\"", behind, note) : ""
            printf "{\"nodes\": %d, \"what\": \"%s\", \"mib\": %d, \"algorithm\": \"%s\", \"ms\": %s, " \
                "\"mb_links\": %s, \"link\": %.4f%s}\n", n, what, mib, how, ms, mb, least / ms,
                extra >>json
            if (best > 0)
                printf "%.4f %.4f %d %s %d\n", behind, least / ms, mib, what, n >>worst
        }'
}

# Runs an algorithm once more; leaves the least time so far and its bytes in $work/ALGORITHM.
try() { # WHAT MIB ALGORITHM
    local ms count
    # Waiting inside MPI wants to yield where ranks outnumber cores; ours waits by itself.
    "$cloud" reset
    read -r ms count <<<"$(OMPI_MCA_mpi_yield_when_idle=1 "$cloud" run -r $per_node "$bench" "$1" "$3" "$2" \
        "$repeats" "$each" 2>/dev/null)"
    "$cloud" stats --json | sed 's/.*"sent_bytes": \([0-9]*\)}$/\1/' |
        awk -v count="$count" -v ms="$ms" '{ printf "%s %.1f\n", ms, $1 / count / 1e6 }' >>"$work/$3"
    sort -g -o "$work/$3" "$work/$3"
}

algorithms() { # NODES WHAT MIB: the rows of one size
    local how round ms mb best=0
    rm -f "$work"/{ring,two-stage,mpi}
    try "$2" "$3" mpi
    for round in $(seq "${ROUNDS:-2}"); do
        for how in ring two-stage; do
            try "$2" "$3" $how
        done
    done
    for how in ring two-stage mpi; do
        read -r ms mb <"$work/$how"
        row "$1" "$2" "$3" $how "$ms" "$mb" "" 0
        best=$(awk -v a="$ms" -v b="$best" 'BEGIN { print (b == 0 || a < b ? a : b) }')
    done
    read -r ms mb <"$work/two-stage"
    row "$1" "$2" "$3" engine "$ms" "$mb" "two-stage, $(awk -v a="$ms" -v b="$best" \
        'BEGIN { printf "%.1f %% behind the best", 100 * (a / b - 1) }')" "$best"
}

printf '%-6s %-7s %5s %-10s %10s %12s %7s\n' nodes what MiB algorithm ms MB_links link
for n in "$@"; do
    up "$n" "${rate}mbit"
    for mib in ${MIB:-8 32 128}; do
        if [ "$SECONDS" -gt "${SECONDS_MAX:-1200}" ]; then
            echo "left out for lack of time: $n nodes, $mib MiB"
            continue
        fi
        for what in ${WHAT:-gather reduce}; do
            algorithms "$n" $what "$mib"
        done
    done
done
sort -gr "$work/worst" | awk '{
        if (NR == 1)
            printf "the engine is at most %.1f %% behind the best of them (%s of %d MiB on %d nodes)", 100 * $1, $4, $3, $5
        if ($3 >= 32 && (!least || $2 < least)) {
            least = $2
            at = $4 " of " $3 " MiB on " $5 " nodes"
        }
    } END { printf "; at 32 MiB and above it has %s\n", least ? sprintf("at least %.0f %% of the link (%s)", 100 * least, at) : "no figure" }'
