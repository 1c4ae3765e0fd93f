#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/cloud/fsdp.sh [KIND...]     PyTorch's FSDP2 over gloo on an emulated cloud, beside mics; needs root
#
# The same GPT-2 shape in fp32, 4 nodes x 2 ranks, in turns: fsdp.py's KINDs (all of them), and mics(2) and zero3-ring,
# as defaults.sh's part `steps` has them. Medians over ROUNDS of tokens/s and step, with their ranges, and the peak of
# resident memory of a rank in steps, which for PyTorch has its libraries in it; mics' is what it allocated.
#
#   PYTHON=python3 (with torch and transformers)   NODES=4  RATE_MBIT=1000  MICRO_STEPS=4  LENGTH=4  STEPS=3  ROUNDS=3
. "$(dirname "$0")/lib.sh"
[ $# -gt 0 ] || set -- zero3 zero3-keep zero3-once hsdp hsdp-keep hsdp-once
micro_steps=${MICRO_STEPS:-4} length=${LENGTH:-4} steps=${STEPS:-3}
export MASTER_ADDR=10.77.0.1 MASTER_PORT=29500 GLOO_SOCKET_IFNAME=eth0 OMP_NUM_THREADS=1

torch_figures() { # KIND: ms and MiB
    "$cloud" run -r "$per_node" "${PYTHON:-python3}" bench/cloud/fsdp.py bench/cloud/gpt2-13m.json "$1" \
        --length "$length" --micro-steps "$micro_steps" --steps "$steps" --ranks-per-node "$per_node" \
        2>"$work/torch.log" || { tail -n 5 "$work/torch.log" >&2 && return 1; }
}

mics_figures() { # SHARDING: ms and MiB
    train run "$1" "$micro_steps" "run.steps=$((steps + 2))" "data.sequence_length=$length" || return 1
    echo "$(median run step_ms) $(mib_of run)"
}

up "${NODES:-4}" "${RATE_MBIT:-1000}mbit"
for _ in $(seq "${ROUNDS:-3}"); do
    for kind in "$@"; do
        echo "FSDP2:$kind $(torch_figures "$kind")" | tee -a "$work/rows" >&2
    done
    for kind in zero3-ring@4 'mics(2)'; do
        echo "$kind $(mics_figures "$kind")" | tee -a "$work/rows" >&2
    done
done
printf '%-18s %10s %10s %10s %10s %10s\n' '' tokens/s step_ms least most MiB
awk '!seen[$1]++ { print $1 }' "$work/rows" | while read -r kind; do
    read -ra ms <<<"$(awk -v kind="$kind" '$1 == kind && NF >= 3 { print $2 }' "$work/rows" | spread)"
    read -ra mib <<<"$(awk -v kind="$kind" '$1 == kind && NF >= 3 { print $3 }' "$work/rows" | spread)"
    awk -v kind="$kind" -v tokens=$((length * micro_steps * ranks)) -v ms="${ms[*]-}" -v mib="${mib[0]-}" 'BEGIN {
        split(ms, m, " ")
        printf "%-18s %10.0f %10.1f %10.1f %10.1f %10.0f\n", kind, m[1] ? tokens / m[1] * 1000 : 0, m[1],
            m[2], m[3], mib
    }'
done
