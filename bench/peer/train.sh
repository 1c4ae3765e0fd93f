#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# A training step of `mics train` beside the same model's in transformers and PyTorch (torch_train.py), on the CPU, in
# turns: tokens/s of each, and the median of the rounds' ratios.
#
# usage: train.sh MICS [CONFIG.json]      PYTHON (with torch, transformers), ROUNDS, STEPS, SEQUENCES, LENGTH, THREADS,
#        DTYPE (fp32, bf16), COMPILE=1 and SETS (more of mics' --set, "KEY=VALUE ...") are read from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mics=${1:?usage: train.sh MICS [CONFIG.json]}
config=$(realpath "${2:-$here/../../configs/llama-120m.json}")
python=${PYTHON:-python3} rounds=${ROUNDS:-3} steps=${STEPS:-6} sequences=${SEQUENCES:-4} length=${LENGTH:-256}
threads=${THREADS:-2} dtype=${DTYPE:-fp32}
mics=$(realpath "$mics")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat "$here"/../../examples/corpus/*.txt >"$work/text.txt"
cat >"$work/run.json" <<JSON
{
  "model": {"config": "$config", "init": "random"},
  "data": {"train": ["$work/text.txt"], "tokenizer": "bytes", "sequence_length": $length},
  "run": {"steps": $((steps + 2)), "threads": $threads, "device": "cpu", "precision": "$dtype", "validation_batches": 0,
          "checkpoint_every": 0, "out": "$work/out"},
  "train_micro_batch_size_per_gpu": $sequences,
  "gradient_clipping": 1.0,
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "weight_decay": 0.1}}
}
JSON

# Milliseconds of a step; the first two are left out, and the last one's save is not in it.
step_of_mics() {
    rm -rf "$work/out"
    set --
    for key in ${SETS:-}; do
        set -- "$@" --set "$key"
    done
    "$mics" train "$work/run.json" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
    sed -n 's/.*"step_ms": \([0-9.]*\).*/\1/p' "$work/out/metrics.jsonl" | tail -n +3 | sort -n |
        awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

step_of_torch() {
    "$python" "$here/torch_train.py" "$config" --sequences "$sequences" --length "$length" --steps "$steps" \
        --threads "$threads" --dtype "$dtype" ${COMPILE:+--compile} ${DROPOUT:+--dropout "$DROPOUT"} 2>"$work/torch.log" ||
        { cat "$work/torch.log" >&2; exit 1; }
}

grep -m 1 'model name' /proc/cpuinfo
echo "$config, $dtype, $sequences x $length tokens, $threads threads; torch $("$python" -c 'import torch, transformers
print(torch.__version__, "transformers", transformers.__version__)')${COMPILE:+, compiled}"
tokens=$((sequences * length))
for round in $(seq "$rounds"); do
    ours=$(step_of_mics)
    theirs=$(step_of_torch)
    echo "$ours $theirs" >>"$work/rounds"
    awk -v n="$tokens" -v r="$round" -v a="$ours" -v b="$theirs" 'BEGIN {
        printf "round %d: mics %.1f tokens/s, torch %.1f tokens/s, ratio %.3f\n", r, n / a * 1e3, n / b * 1e3, b / a }'
done
awk '{ print $2 / $1 }' "$work/rounds" | sort -n |
    awk '{ v[NR] = $1 } END { printf "median ratio %.3f\n", NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
