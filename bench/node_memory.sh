#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/node_memory.sh     what a copy in node memory costs, beside a step and a save to disk
#
# Trains MODEL (124 million parameters) with RANKS ranks as threads, MICRO x LENGTH tokens a rank. Every second step is followed
# by a copy (or a save), so gaps between steps tell its time within one run: medians over STEPS steps, in s. The first copy,
# whose pages are new, is told apart. MICS_SHM_DIR says where copies go, OUT_DIR where checkpoints do.
#
#   BUILD=build   RANKS=2   NODES=1   SHARDING=2 (mics)   STEPS=12   MICRO=4   LENGTH=256   MODEL=configs/gpt2.json
set -euo pipefail
cd "$(dirname "$0")/.."
mics=$PWD/${BUILD:-build}/mics
case ${BUILD:-} in /*) mics=$BUILD/mics ;; esac
work=$(mktemp -d "${OUT_DIR:-/tmp}/mics-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
degree=${SHARDING:-2}

cat >"$work/run.json" <<END
{"model": {"config": "${MODEL:-configs/gpt2.json}"},
 "data": {"train": ["examples/corpus/sonnets-*.txt"], "sequence_length": ${LENGTH:-256}},
 "run": {"steps": ${STEPS:-12}, "seed": 1, "validation_batches": 0, "log_every": 1, "keep_checkpoints": 1},
 "sharding": {"params": $degree, "grads": $degree, "optimizer": $degree},
 "train_micro_batch_size_per_gpu": ${MICRO:-4},
 "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}}
END

# Prints the gap after each step: "STEP SECONDS".
gaps() { # SETTING...
    local setting flags=()
    for setting in "$@"; do
        flags+=(--set "$setting")
    done
    rm -rf "$work/out"
    "$mics" train "$work/run.json" --ranks "${RANKS:-2}" --nodes "${NODES:-1}" --out "$work/out" --resume none "${flags[@]}" |
        while read -r line; do
            case $line in
            'step '*' is kept in node memory'*) echo "$line" >&2 ;;
            step\ *) echo "$EPOCHREALTIME ${line#step }" ;;
            esac
        done | awk '{ step = $2 + 0; if (step > 1) print step - 1, $1 - last; last = $1 }'
}

median() { # of the gaps after odd steps (0) or even ones (1), but the first of each
    awk -v even="$1" '$1 > 2 && ($1 % 2 == 0) == even { print $2 }' |
        sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

one() { # NAME SETTING...
    gaps "${@:2}" >"$work/gaps"
    step=$(median 0 <"$work/gaps") both=$(median 1 <"$work/gaps")
    awk -v n="$1" -v s="$step" -v b="$both" \
        'BEGIN { printf "%-20s step %.3f s, with it %.3f s: %.3f s, %.1f %% of a step\n", n, s, b, b - s, 100 * (b - s) / s }'
}

one 'copy in node memory' run.memory_checkpoint_every=2 run.checkpoint_every=0
one 'save to disk' run.checkpoint_every=2
