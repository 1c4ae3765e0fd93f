#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/tokenizer_training.sh MICS TEXT [PYTHON]     training a tokenizer, beside Hugging Face's tokenizers
#
# Rounds in turn, so that what else the machine does falls on both; elapsed and CPU seconds, and whether the files are equal.
# PYTHON has `tokenizers` (pip install tokenizers==0.23.3).
#
#   ROUNDS=3   VOCAB=32000
set -eu
mics=$(realpath "$1") text=$(realpath "$2") python=${3:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >theirs.py <<'PY'
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(vocab_size=int(sys.argv[1]), special_tokens=["<|endoftext|>"], show_progress=False,
                              initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
tokenizer.train([sys.argv[2]], trainer)
tokenizer.save("theirs.json", pretty=False)
PY
TIMEFORMAT='%R %U %S'
timed() { # COMMAND...: elapsed and CPU seconds
    { time "$@" >out 2>err || { cat err >&2; exit 1; }; } 2>&1 | awk '{ printf "%8.2f %8.2f", $1, $2 + $3 }'
}
printf '%-6s %8s %8s %8s %8s   s\n' round mics cpu theirs cpu
for round in $(seq "${ROUNDS:-3}"); do
    rm -f ours.json
    ours=$(timed "$mics" tokenize --train "${VOCAB:-32000}" --special '<|endoftext|>' --quiet "$text" --out ours.json)
    theirs=$(timed "$python" theirs.py "${VOCAB:-32000}" "$text")
    cmp ours.json theirs.json || exit 1
    printf '%-6s %s %s   equal files\n' "$round" "$ours" "$theirs"
done
