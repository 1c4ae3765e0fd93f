#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/bf16.sh [SHARDING...]     fp32 beside bf16 on an emulated cloud; needs root
#
# For each sharding (mics(2):1) on NODES=4 x 2 ranks: tokens/s and step of a run in fp32 and one in bf16, in turns, and
# what the links' own counters say was sent in all steps. Ends with the medians of the rounds' ratios.
#
#   NODES=4  RATE_MBIT=1000  MICRO_STEPS=4  STEPS=5  ROUNDS=3
#   LENGTH=4            tokens of a micro-batch
#   SETTINGS="key=value ..."   of the run file, for all runs
. "$(dirname "$0")/lib.sh"
read -ra settings <<<"${SETTINGS:-}"
micro_steps=${MICRO_STEPS:-4}
[ $# -gt 0 ] || set -- 'mics(2):1'
up "${NODES:-4}" "${RATE_MBIT:-1000}mbit"
grep -m 1 'model name' /proc/cpuinfo

measure() { # SHARDING PRECISION: leaves "tokens/s bytes-on-links" in `row`
    train "$2" "$1" "$micro_steps" "run.steps=${STEPS:-5}" "data.sequence_length=${LENGTH:-4}" run.prefetch=1 \
        "run.precision=$2" ${settings[@]+"${settings[@]}"}
    row="$(median "$2" tokens_per_s) $(cat "$work/$2/links")"
    printf '%s %s: %.0f tokens/s, %.1f ms a step, %.1f ms of it waiting; links %.1f MB in all, %.1f MB counted\n' \
        "$1" "$2" "${row% *}" "$(median "$2" step_ms)" "$(median "$2" exposed_comm_ms)" \
        "$(awk -v b="${row#* }" 'BEGIN { print b / 1e6 }')" \
        "$(awk -v b="$(total "$2" sent_inter_bytes)" 'BEGIN { print b / 1e6 }')"
}

for kind in "$@"; do
    : >"$work/rounds"
    for _ in $(seq "${ROUNDS:-3}"); do
        measure "$kind" fp32
        fp32=$row
        measure "$kind" bf16
        echo "$fp32 $row" >>"$work/rounds"
    done
    printf '%s: bf16 has %.2f times the tokens/s of fp32 and %.3f of its bytes on the links\n' "$kind" \
        "$(awk '{ print $3 / $1 }' "$work/rounds" | spread | cut -d' ' -f1)" \
        "$(awk '{ print $4 / $2 }' "$work/rounds" | spread | cut -d' ' -f1)"
done
