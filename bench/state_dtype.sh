#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What optimizer.params.state_dtype does to a loss: the same run of a GPT-2 of 3M parameters on the
# sonnets, one rank, with each dtype. Prints losses over steps, and how far the last ones are off.
# usage: [STEPS=1000] [SEED=1] [THREADS=2] [BATCH=4] [DTYPES="fp32 8bit"] bench/state_dtype.sh MICS
#        [OUT]
set -eu
mics=$1
out=${2:-$(mktemp -d)}
steps=${STEPS:-1000}
mkdir -p "$out"
cat >"$out/model.json" <<END
{"model_type": "gpt2", "n_layer": 4, "n_head": 4, "n_embd": 256, "n_positions": 64,
 "vocab_size": 256}
END
cat >"$out/run.json" <<END
{"model": {"config": "$out/model.json", "init": "random"},
 "data": {"train": ["examples/corpus/sonnets-*.txt"],
          "validation": ["examples/corpus/validation-*.txt"],
          "tokenizer": "bytes", "sequence_length": 64},
 "run": {"steps": $steps, "seed": ${SEED:-1}, "validate_every": $steps, "validation_batches": 64,
         "device": "cpu", "precision": "fp32", "threads": ${THREADS:-2}},
 "train_micro_batch_size_per_gpu": ${BATCH:-4}, "gradient_accumulation_steps": 1,
 "optimizer": {"type": "AdamW",
               "params": {"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.1}},
 "scheduler": {"type": "WarmupCosineLR",
               "params": {"warmup_num_steps": 100, "warmup_type": "linear",
                          "total_num_steps": $steps, "cos_min_ratio": 0.05}},
 "gradient_clipping": 1.0}
END
dtypes=${DTYPES:-fp32 bf16 8bit}
for dtype in $dtypes; do
    "$mics" train "$out/run.json" --out "$out/$dtype" --resume none \
        --set "optimizer.params.state_dtype=$dtype" >"$out/$dtype.log" 2>&1
done
# shellcheck disable=SC2086 # words
python3 - "$out" "$steps" $dtypes <<'END'
import json, sys
out, steps, dtypes = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
rows = {d: [json.loads(line) for line in open(f"{out}/{d}/metrics.jsonl")] for d in dtypes}
loss = {d: [row["loss"] for row in rows[d] if "loss" in row] for d in dtypes}
valid = {d: [row["validation_loss"] for row in rows[d] if "validation_loss" in row] for d in dtypes}
mean = {d: sum(loss[d][-50:]) / len(loss[d][-50:]) for d in dtypes}
print("| state_dtype | steps 1-50 | last 50 steps | off fp32 | validation | off fp32 |")
print("|---|---|---|---|---|---|")
for d in dtypes:
    first = sum(loss[d][:50]) / len(loss[d][:50])
    print(f"| {d} | {first:.4f} | {mean[d]:.4f} | {100 * (mean[d] / mean[dtypes[0]] - 1):+.2f} % "
          f"| {valid[d][-1]:.4f} | {100 * (valid[d][-1] / valid[dtypes[0]][-1] - 1):+.2f} % |")
END
