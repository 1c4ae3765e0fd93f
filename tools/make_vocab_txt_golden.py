#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/vocab_txt/: folders with BERT's vocab.txt and no tokenizer.json, and what transformers'
BertTokenizer makes of the hostile texts of make_tokenizer_families.py (hashes of ids, as there).

    pip install torch transformers==5.23.0 tokenizers==0.23.3
    tools/make_vocab_txt_golden.py tests/golden/vocab_txt

`plain` has no tokenizer_config.json. `cased` has one, with other special tokens and without lower case, and
lines that end as on Windows.
"""

import json
import pathlib
import sys

from transformers import BertTokenizer

import make_tokenizer_families as families

SETTINGS = {
    "tokenizer_class": "BertTokenizer", "do_lower_case": False, "strip_accents": True,
    "tokenize_chinese_chars": False, "model_max_length": 512, "cls_token": "the",
    "mask_token": {"__type": "AddedToken", "content": "[mask]", "lstrip": False, "normalized": False,
                   "rstrip": False, "single_word": False},
}


def words():
    golden = pathlib.Path(__file__).resolve().parent.parent / "tests/golden/tokenizers/bert.json"
    vocab = json.loads(golden.read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(vocab, key=vocab.get)


def make(folder, lines, end, settings):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_bytes("".join(line + end for line in lines).encode())
    if settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    tokenizer = BertTokenizer.from_pretrained(folder)
    assert len(tokenizer) == len(lines)
    tree = json.loads(tokenizer.backend_tokenizer.to_str())
    backend = families.Tokenizer.from_str(json.dumps(tree))
    with open(folder / "hashes", "w", encoding="utf-8") as file:
        for index in range(families.TEXTS):
            file.write("%08x\n" % families.fnv(families.encode(tree, backend, backend, families.hostile(index))))
    print(folder, tree["normalizer"], tree["model"]["max_input_chars_per_word"], tree["decoder"],
          tree["added_tokens"], tree["post_processor"])


def main():
    out = pathlib.Path(sys.argv[1])
    plain = words()
    make(out / "plain", plain, "\n", None)
    make(out / "cased", ["[mask]" if word == "[MASK]" else word for word in plain], "\r\n", SETTINGS)


if __name__ == "__main__":
    main()
