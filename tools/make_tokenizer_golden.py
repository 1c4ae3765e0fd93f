#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/tokenizer/: small BPE tokenizers and what Hugging Face's library makes of hard texts.

    pip install tokenizers==0.23.3 && tools/make_tokenizer_golden.py tests/golden/tokenizer

Each NAME.json is a tokenizer.json, each NAME.cases.json what tokenizers.Tokenizer.encode(text,
add_special_tokens=False) gives: a list of {"hex": the text's UTF-8, "ids": [...]}. Texts are in hexadecimal
because JSON readers differ on NUL. The tests need no Python.
"""

import json
import os
import random
import sys

import pydoc_data.topics
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

HARD = [
    "",
    " ",
    "a",
    "Hello world",
    " Hello  world   three    spaces ",
    "it's I'll we've they'd I'm you're don't IT'S O'Neill 'tis ''s",
    "tabs\tand\nnew\n\nlines\r\n\r\nand \n mixed \t \n ends \n",
    "   \n  leading",
    "1 12 123 1234 12345 3.14159 1,000,000 \u0661\u0662\u0663 \u00bd \u2167",
    "na\u00efve caf\u00e9 cafe\u0301 \u00dcber stra\u00dfe \u0130stanbul",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8 \ud55c\uad6d\uc5b4",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f \U0001f44d\U0001f3fd!",
    "\u043f\u0440\u0438\u0432\u0435\u0442 \u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627 \u0939\u093f\u0928\u094d\u0926\u0940 \u0e44\u0e17\u0e22",
    "nul\x00in\x00\x00side \x01\x02\x7f\x1b[0m",
    "\u00a0nbsp\u00a0\u00a0two \u2003em\u2009thin\u3000ideographic\u2028ls\u2029ps\x85nel \u180emvs \u200bzwsp\ufeffbom",
    "!!! ??? ... --- ___ ((())) <|endoftext| > <||> ~`@#$%^&*",
    "def f(x):\n    if x:\n        return x ** 2  # comment\n\treturn None\n",
    "http://example.com/a?b=c&d=%20#frag user@example.org",
    "\U0010ffff \U00010000 \ud7ff \ue000 \ufffd \uffff",
    "a" * 300,
    "ab" * 200 + " " * 100 + "x",
    "\n" * 50,
    "the " * 40,
    "ThisIsCamelCaseAndALLCAPSandsnake_case_words x1y2z3",
]
SPECIAL = [
    "<|endoftext|>",
    "one<|endoftext|>two <|endoftext|> three<|endoftext|><|endoftext|>\n",
    "<|endoftext|<|endoftext|>|>",
]


def random_texts(count):
    rng = random.Random(7)
    parts = [" ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "the", "Python", "0", "42", "\u00e9", "\u4f60", "\U0001f600",
             "e\u0301", ".", "!?", "_", "\u00a0", "\u2028", "\x00", "\u0660", "\u00b2", "ing", "function", "class", "-->"]
    return ["".join(rng.choice(parts) for _ in range(rng.randint(1, 40))) for _ in range(count)]


def train(pre, vocab, **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    topics = pydoc_data.topics.topics
    lines = [topics[key] for key in sorted(topics)][:40] + HARD
    trainer = trainers.BpeTrainer(vocab_size=vocab, show_progress=False, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer


def write(folder, name, tokenizer, texts, edit=lambda tree: None):
    tree = json.loads(tokenizer.to_str())
    edit(tree)
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    Tokenizer.from_str(text)  # what was edited must still be one
    with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
        file.write(text)
    cases = [{"hex": t.encode("utf-8").hex(), "ids": tokenizer.encode(t, add_special_tokens=False).ids} for t in texts]
    with open(os.path.join(folder, name + ".cases.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases) + "\n]\n")


def old_style(tree):
    """As the files of GPT-2's time: merges as "a b", and no model type."""
    del tree["model"]["type"]
    tree["model"]["merges"] = [" ".join(merge) for merge in tree["model"]["merges"]]


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    level = pre_tokenizers.ByteLevel
    texts = HARD + random_texts(150)
    gpt2 = train(level(add_prefix_space=False), 700)
    write(folder, "gpt2", gpt2, texts + SPECIAL, old_style)
    prefix = train(level(add_prefix_space=True), 500)
    prefix.add_tokens([AddedToken("  ", normalized=False), AddedToken("    ", normalized=False), AddedToken("\u4f60\u597d")])
    write(folder, "prefix", prefix, texts + SPECIAL)
    split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated")
    llama = train(pre_tokenizers.Sequence([split, level(add_prefix_space=False, use_regex=False)]), 600, ignore_merges=True)
    write(folder, "llama3", llama, texts + SPECIAL)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), level(add_prefix_space=False)])
    write(folder, "digits", train(digits, 450), texts + SPECIAL)


if __name__ == "__main__":
    main()
