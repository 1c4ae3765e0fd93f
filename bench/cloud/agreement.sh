#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/agreement.sh [NODES...]     a step's agreement on an emulated cloud; needs root
#
# For each number of nodes (2 8): what ranks agree on in a step, as one small all-gather by doubling, which a step has,
# and by one ring, in turns in one program: medians, least and most in us, and what a plan says with a cluster file that
# `mics bench` has measured on that cloud just before.
#
#   RATE_MBIT=1000      of each link
#   ROUNDS=31           of 40 agreements each way
#   SECONDS_EACH=20     of mics bench compute, and of mics bench comm
. "$(dirname "$0")/lib.sh"
bench=$(dirname "$mics")/bench/agreement
[ -x "$bench" ] || { echo "no $bench; build first: make" >&2; exit 1; }
[ $# -gt 0 ] || set -- 2 8
seconds=${SECONDS_EACH:-20}

measure() { # KIND ARGUMENTS...: into the cloud's cluster file
    "$cloud" run -r "$per_node" "$mics" bench "$1" "${@:2}" --threads 1 --seconds "$seconds" --out "$work/$nodes.json" \
        >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2 && return 1; }
}

for n in "$@"; do
    up "$n" "${RATE_MBIT:-1000}mbit"
    "$cloud" run -r "$per_node" "$bench" measured "${ROUNDS:-31}" >"$work/measured"
    measure compute bench/cloud/run.json
    measure comm
    "$bench" planned "$work/$n.json:$n" >"$work/planned"
    while read -r how figures; do
        echo "$n nodes x $per_node, $how: $figures us; planned: $(sed -n "s/^$how //p" "$work/planned") us"
    done <"$work/measured"
done
