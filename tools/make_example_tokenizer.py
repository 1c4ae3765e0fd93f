#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the tokenizers of the examples.

examples/bert-tokenizer.json: a WordPiece tokenizer, as BERT's, of the example texts.
examples/chat/tokenizer.json: a byte-level BPE of examples/chats.jsonl, with the tokens of its chat template.

    pip install tokenizers==0.23.3 && tools/make_example_tokenizer.py
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = 2000
CHAT_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_VOCAB = 1024


def write(tokenizer, path):
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    path.write_text(text + "\n", encoding="utf-8")


def make_bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCAB, show_progress=False, special_tokens=SPECIALS)
    tokenizer.train([str(path) for path in sorted((EXAMPLES / "corpus").glob("*.txt"))], trainer)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    write(tokenizer, EXAMPLES / "bert-tokenizer.json")


def make_chat():
    chats = [json.loads(line) for line in (EXAMPLES / "chats.jsonl").read_text(encoding="utf-8").splitlines()]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=CHAT_VOCAB, show_progress=False, special_tokens=CHAT_SPECIALS,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.train_from_iterator((m["content"] for chat in chats for m in chat["messages"]), trainer)
    write(tokenizer, EXAMPLES / "chat" / "tokenizer.json")


if __name__ == "__main__":
    make_bert()
    make_chat()
