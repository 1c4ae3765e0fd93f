#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes examples/bert-tokenizer.json: a WordPiece tokenizer, as BERT's, of the example texts.

    pip install tokenizers==0.23.3 && tools/make_example_tokenizer.py
"""

import json
import pathlib

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

EXAMPLES = pathlib.Path(__file__).resolve().parent.parent / "examples"
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCAB = 2000


def main():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCAB, show_progress=False, special_tokens=SPECIALS)
    tokenizer.train([str(path) for path in sorted((EXAMPLES / "corpus").glob("*.txt"))], trainer)
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    text = json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":"))
    (EXAMPLES / "bert-tokenizer.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
