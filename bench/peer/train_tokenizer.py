#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Trains a tokenizer of GPT-2's kind (byte-level BPE, its pattern, 50257 tokens) on JSON Lines from standard input.

    train_tokenizer.py OUT.json < TEXTS.jsonl
"""

import json
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

tokenizer = Tokenizer(models.BPE())
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
trainer = trainers.BpeTrainer(
    vocab_size=50257,
    special_tokens=["<|endoftext|>"],
    initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
)
tokenizer.train_from_iterator((json.loads(line)["text"] for line in sys.stdin), trainer)
tokenizer.save(sys.argv[1])
