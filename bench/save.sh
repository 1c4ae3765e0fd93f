#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/save.sh MICS [OUT]     how long saves stop training: behind the steps, and waited for; OUT: a folder of the disk
#
# A GPT-2 of 124M parameters (SIZE=small: 10M), of which each of 2 ranks saves a part each EVERY steps. `waited` is what training
# stands still for a save (save_ms of metrics.jsonl), `step` the steps' median, `beside` that of steps beside which a save is
# written. Where run.memory_limit leaves nothing for a copy, saves are waited for.
#
#   EVERY=6   STEPS=20   SIZE=124m   SHARDING=1 (replicas; 2: shards)
set -eu
mics=$(realpath "$1")
out=$(realpath "${2:-.}")
every=${EVERY:-6} steps=${STEPS:-20} sharding=${SHARDING:-1}
layers=12 hidden=768 heads=12 vocab=50257
[ "${SIZE:-124m}" = small ] && layers=4 hidden=384 heads=6 vocab=8192
work=$(mktemp -d "$out/mics-save-XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >model.json <<JSON
{"model_type": "gpt2", "n_embd": $hidden, "n_head": $heads, "n_layer": $layers, "n_positions": 64, "vocab_size": $vocab,
 "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "tie_word_embeddings": true}
JSON
yes 'the lark at break of day arising from sullen earth sings hymns at gate of heaven' | head -n 2000 >text.txt
"$mics" tokenize text.txt --out text.bin >tokenize.out # of which nothing is written as text in the end
cat >run.json <<JSON
{"model": {"config": "model.json"}, "data": {"train": ["text.bin"]},
 "run": {"steps": $steps, "seed": 1, "checkpoint_every": $every, "validation_batches": 0, "threads": 1, "keep_checkpoints": 1},
 "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
 "sharding": {"params": $sharding, "grads": $sharding, "optimizer": $sharding}}
JSON
median() { sort -n | awk '{ x[NR] = $1 } END { if (NR) printf "%.0f", x[int((NR + 1) / 2)]; else printf "-" }'; }
# shellcheck disable=SC2016 # awk's $
steps_of() { # OUT CONDITION: their step_ms
    sed -n 's/.*"step": \([0-9]*\), "loss.*"step_ms": \([0-9.]*\),.*"save_ms": \([0-9.e-]*\)[,}].*/\1 \2 \3/p' "$1/metrics.jsonl" |
        awk -v every="$every" "$2"
}
limit=$("$mics" explain run.json --ranks 2 | sed -n '/^  in all/{s/.* \([0-9]*\) B$/\1/p;q}')
printf '%-10s %12s %12s %12s   ms\n' saves waited step beside
for how in behind waiting; do
    set -- --ranks 2 --out "$how"
    [ $how = waiting ] && set -- "$@" --set run.memory_limit="$limit"
    "$mics" train run.json "$@" >"$how.out" 2>"$how.err" || { tail -n 3 "$how.err"; exit 1; }
    printf '%-10s %12s %12s %12s\n' $how "$(steps_of $how '$1 % every == 1 && $1 > 1 { print $3 }' | median)" \
        "$(steps_of $how '$1 > 1 && $1 % every == 0 { print $2 }' | median)" \
        "$(steps_of $how '$1 % every == 1 && $1 > 1 { print $2 }' | median)"
    rm -rf "$how/checkpoints"
done
