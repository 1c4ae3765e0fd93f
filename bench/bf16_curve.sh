#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The loss curve of a training in bf16 beside the same in fp32, on the CPU: how far each step's loss is from fp32's,
# and tokens/s of both.
#
# usage: bf16_curve.sh MICS [CONFIG.json]      default: bench/cloud/gpt2-13m.json. STEPS=300, SEQUENCES=8, LENGTH=64,
#        THREADS=2, LR=1e-3, and SETS (more of mics' --set, "KEY=VALUE ...") are read from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mics=$(realpath "${1:?usage: bf16_curve.sh MICS [CONFIG.json]}")
config=$(realpath "${2:-$here/cloud/gpt2-13m.json}")
steps=${STEPS:-300} sequences=${SEQUENCES:-8} length=${LENGTH:-64}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$here"/../examples/corpus/*.txt >"$work/text.txt"
cat >"$work/run.json" <<JSON
{
  "model": {"config": "$config", "init": "random"},
  "data": {"train": ["$work/text.txt"], "tokenizer": "bytes", "sequence_length": $length},
  "run": {"steps": $steps, "threads": ${THREADS:-2}, "device": "cpu", "validation_batches": 0, "checkpoint_every": 0},
  "train_micro_batch_size_per_gpu": $sequences,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": ${LR:-1e-3}, "weight_decay": 0.1}},
  "scheduler": {"type": "WarmupCosineLR", "params": {"warmup_num_steps": 20, "total_num_steps": $steps}}
}
JSON
set --
for key in ${SETS:-}; do
    set -- "$@" --set "$key"
done
# Step, loss and milliseconds.
for precision in fp32 bf16; do
    "$mics" train "$work/run.json" --out "$work/$precision" --set run.precision=$precision "$@" >"$work/log" 2>&1 ||
        { cat "$work/log" >&2; exit 1; }
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*"step_ms": \([0-9.]*\).*/\1 \2 \3/p' \
        "$work/$precision/metrics.jsonl" >"$work/$precision.txt"
done
grep -m 1 'model name' /proc/cpuinfo
grep -h '^model' "$work/log"
paste "$work/fp32.txt" "$work/bf16.txt" | awk -v n=$((sequences * length)) '
    { d = $5 / $2 - 1; d = d < 0 ? -d : d; sum += d; if (d > most) { most = d; at = $1 }
      fp32[NR] = $3; bf16[NR] = $6; last[NR] = $2; half[NR] = $5 }
    END { for (i = 1; i <= NR; i++) {
            a += last[i] / 20; b += half[i] / 20
            if (i > 20) { a -= last[i - 20] / 20; b -= half[i - 20] / 20 }
            d = i >= 20 ? b / a - 1 : 0; d = d < 0 ? -d : d; curve = d > curve ? d : curve }
        printf "%d steps of %d tokens: loss of bf16 beside fp32, a step alone: %.3f %% apart on average, %.3f %% at " \
            "most (step %d); means of 20 steps: %.3f %% at most\n", NR, n, 100 * sum / NR, 100 * most, at, 100 * curve
        printf "last 20 steps: fp32 %.4f, bf16 %.4f (%+.3f %%)\n", a, b, 100 * (b / a - 1) }'
for precision in fp32 bf16; do
    sort -n -k 3 "$work/$precision.txt" |
        awk -v n=$((sequences * length)) -v p=$precision '{ v[NR] = $3 } END { printf "%s: %.0f tokens/s (median step)\n", p, n / v[int((NR + 1) / 2)] * 1e3 }'
done
