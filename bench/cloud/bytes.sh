#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/bytes.sh [SHARDING...]     bytes on the links beside the schedule's ledger; needs root
#
# For each sharding on NODES x 2 ranks, with MICRO_STEPS micro-steps: the inter-node bytes of a step as `mics explain`
# sums them, as the run counted them, and as the links' own counters saw them, with and without the headers of their
# packets. The links also carry MPI's start, the timing of collectives, and what ends a run; so a step is the difference
# between runs of 2 and of 8 steps, divided by 6. Links are not shaped here, since bytes do not depend on their rate.
# `off` is what the links carried without headers over the ledger's bytes, less one. Exits with 1 where that is over
# MARGIN percent either way, or a run counted what the ledger does not say. A busy machine sends packets again.
#
#   NODES=4   MICRO_STEPS=4   MARGIN=0.3   SETTINGS="key=value ..." of the run file, for all runs
. "$(dirname "$0")/lib.sh"
read -ra settings <<<"${SETTINGS:-}"
micro_steps=${MICRO_STEPS:-4}
[ $# -gt 0 ] || set -- zero3-ring zero3:1 zero3:4 'mics(4):1' 'mics(4):4' 'hpz(2):1' 'hpz(2):4' \
    'mics(2):1' 'mics(2):4' 'mics+(2):1' 'mics+(2):4' zero2:1 zero2:4 zero1:1 zero1:4 ddp:1 ddp:4 zero3 'mics(2)' auto

bytes_of() { # SHARDING STEPS: prints what the run counted, what the links carried, and that without headers
    train run "$1" "$micro_steps" "run.steps=$2" data.sequence_length=4 ${settings[@]+"${settings[@]}"} || return 1
    echo "$(total run sent_inter_bytes) $(cat "$work/run/links") $(cat "$work/run/payload")"
}

measure() { # SHARDING: a row
    local two eight ledger
    two=$(bytes_of "$1" 2)
    eight=$(bytes_of "$1" 8)
    read -r ledger _ <<<"$(ledger_of run)"
    awk -v name="$1" -v two="$two" -v eight="$eight" -v ledger="$ledger" 'BEGIN {
        split(two, a, " "); split(eight, b, " ")
        printf "%-14s %12.2f", name, ledger / 1048576
        for (i = 1; i <= 3; i++)
            printf " %12.2f", (b[i] - a[i]) / 6 / 1048576
        printf " %9.3f%%\n", ledger ? 100 * ((b[3] - a[3]) / 6 / ledger - 1) : 0
    }'
}

up "${NODES:-4}" none
printf '%-14s %12s %12s %12s %12s %10s\n' 'MiB a step:' ledger counted links payload off
for kind in "$@"; do
    measure "$kind"
done | tee "$work/rows"
awk -v margin="${MARGIN:-0.3}" '
    $6 + 0 > margin || $6 + 0 < -margin { print $1 ": the links are off by " $6; status = 1 }
    $2 != $3 { print $1 ": counted " $3 " MiB where the ledger says " $2; status = 1 }
    END { exit status }' "$work/rows"
