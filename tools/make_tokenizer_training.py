#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer_training/: texts, and the tokenizers that Hugging Face's library trains on them.

    pip install tokenizers==0.23.3 && tools/make_tokenizer_training.py tests/golden/tokenizer_training

NAME.json is what Tokenizer.save(path, pretty=False) writes, byte by byte; CASES below are the calls. Of
repeats.txt many pairs are as frequent, and pairs spell what others do. tools/make_tokenizer_families.py
makes the texts. The tests need no Python.
"""

import json
import os
import random
import sys

from make_tokenizer_families import hostile
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

ALPHABET = pre_tokenizers.ByteLevel.alphabet()
END = "<|endoftext|>"
# Name, files, vocabulary, lowest frequency, special tokens.
CASES = [
    ("text", ["text.txt"], 900, 0, [END]),
    ("frequent", ["text.txt", "repeats.txt"], 4000, 5, [END, "[PAD]", "\u4f60\"\\"]),
    ("repeats", ["repeats.txt"], 100000, 0, []),
    ("rows", ["rows.jsonl"], 700, 0, [END]),
]


def new_tokenizer():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(files, vocab, frequency, specials):
    tokenizer = new_tokenizer()
    trainer = trainers.BpeTrainer(vocab_size=vocab, min_frequency=frequency, special_tokens=specials,
                                  initial_alphabet=ALPHABET, show_progress=False)
    if files[0].endswith(".jsonl"):
        with open(files[0], encoding="utf-8") as lines:
            tokenizer.train_from_iterator([json.loads(line)["text"] for line in lines], trainer)
    else:
        tokenizer.train(files, trainer)
    return tokenizer


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    os.chdir(sys.argv[1])
    rng = random.Random(11)
    texts = [hostile(i).replace(b"\0", b"").decode() for i in range(160) if i % 4 != 3]
    with open("text.txt", "w", encoding="utf-8", newline="") as file:
        file.write("\n".join(texts))
    with open("rows.jsonl", "w", encoding="utf-8", newline="") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in texts[:60])
    with open("repeats.txt", "w", encoding="utf-8", newline="") as file:
        file.write("".join(rng.choice("aab \n") for _ in range(4000)) + "a" * 300)
    for name, *case in CASES:
        train(*case).save(name + ".json", pretty=False)


if __name__ == "__main__":
    main()
