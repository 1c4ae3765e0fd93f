#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Files with the keys and values that the documentation of DeepSpeed, Hugging Face's Trainer,
# accelerate and others names: which train as they are, which are refused, and why. Prints a table,
# and fails where it is not the one in docs/migrating.md; UPDATE=1 writes it there.
# usage: test_foreign_files.sh MICS SOURCE
set -eu
mics=$1 source=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export MICS_CUDA_PLUGIN=none
i=0
while [ $i -lt 400 ]; do
    echo "line $i of a text that a small model reads in these tests"
    i=$((i + 1))
done >text.txt

# Which keys are taken does not depend on how much is computed.
sed -e '/"n_embd"/s/[0-9][0-9]*/16/' -e '/"n_layer"/s/[0-9][0-9]*/1/' "$source/configs/gpt2-tiny.json" >model.json

# The first 16 words of a refusal without its file's path.
reason() {
    sed -n '/error: /{s/.*error: //;s|[^ ]*/||;s|^\([a-z0-9_]*\.[a-z]*\)[:0-9]*: *||;p;q;}' "$1" | tr '|' '/' |
        cut -c 1-170
}

# fp16 is for GPUs, where nothing is run here.
try() {
    name=$1
    model="--model model.json --data text.txt --set data.sequence_length=8"
    # shellcheck disable=SC2086
    if tr -d ' \n' <"$2" | grep -q -e '"fp16":true' -e '"fp16":{"enabled":true' -e 'mixed_precision:fp16'; then
        "$mics" explain "$2" $model --set run.steps=2 --set run.device=cuda >said.out 2>said.err &&
            said='explained (fp16 needs a GPU)' || said=refused
    elif [ "$name" = trainer_epochs ] || [ "$name" = trainer_best ]; then
        "$mics" train "$2" $model >said.out 2>said.err && said=trained || said=refused
    else
        "$mics" train "$2" $model --out "runs/$name" --steps 2 >said.out 2>said.err && said=trained || said=refused
    fi
    [ "$said" = refused ] && why=$(reason said.err) || why=
    echo "| \`$name\` | $said | $why |"
}

echo '| file | | why |' >table
echo '|---|---|---|' >>table
echo '{"train_micro_batch_size_per_gpu": "auto", "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
  "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}' >ds_config.json
for file in "$source"/tests/config/foreign/*; do
    name=$(basename "$file")
    try "${name%.*}" "$file" >>table
done
cat table
runs=$(grep -c -e '| trained |' -e '| explained' table)
[ "$runs" -ge 16 ] || { echo "only $runs files run"; exit 1; }
grep -q refused table || { echo "nothing is refused"; exit 1; }

# What --model, --data and --tokenizer say, and defaults of the Trainer.
"$mics" explain "$source/tests/config/foreign/hf_zero3_decay.json" \
    --model "$source/configs/gpt2-tiny.json" --data text.txt --set run.steps=10 >said.out
for row in 'optimizer.params.lr  *5e-05' 'gradient_clipping  *1 ' \
    'train_micro_batch_size_per_gpu  *8 ' 'scheduler.type  *"WarmupDecayLR"' 'run.seed  *42'; do
    grep -q "$row" said.out || { echo "explain has no $row"; exit 1; }
done
tail -n 1 runs/trainer_linear/metrics.jsonl | grep -q '"step": 2' ||
    { echo "trainer_linear did not train two steps"; exit 1; }

page=$source/docs/migrating.md
sed -n '/^<!-- files -->$/,/^<!-- \/files -->$/p' "$page" | grep '^|' >said || true
if ! cmp -s table said; then
    if [ "${UPDATE:-0}" = 1 ]; then
        awk 'FNR == NR { t = t $0 "\n"; next }
             /^<!-- files -->$/ { print; printf "\n%s\n", t; skip = 1 }
             /^<!-- \/files -->$/ { skip = 0 }
             !skip' table "$page" >page
        cp page "$page"
    else
        diff said table || true
        echo "docs/migrating.md has another table; UPDATE=1 $0 writes it"
        exit 1
    fi
fi
