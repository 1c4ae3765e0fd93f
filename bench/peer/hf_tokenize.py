#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizes packed JSON Lines with Hugging Face's tokenizers, in batches, and writes the ids as mics tokenize does, without
its header: the separator before each text.

    hf_tokenize.py TEXTS.jsonl.zst TOKENIZER.json OUT BYTES THREADS
"""

import json
import subprocess
import sys
import time

import numpy
import tokenizers

BATCH = 2000


def main():
    texts, path, out, size, threads = sys.argv[1:]
    tokenizer = tokenizers.Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = True
    separator = tokenizer.token_to_id("<|endoftext|>")
    width = numpy.uint16 if tokenizer.get_vocab_size() <= 65536 else numpy.uint32
    start, encoding = time.time(), 0.0
    lines = subprocess.Popen(["zstd", "-dcq", texts], stdout=subprocess.PIPE, text=True, encoding="utf-8").stdout
    with open(out, "wb") as file:
        while batch := [json.loads(line)["text"] for _, line in zip(range(BATCH), lines)]:
            begin = time.time()
            encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
            encoding += time.time() - begin
            for one in encoded:
                file.write(numpy.array([separator] + one.ids, dtype=width).tobytes())
    wall, mb = time.time() - start, int(size) / 1e6
    print(
        f"tokenizers {tokenizers.__version__}, {threads} threads: {wall:.1f} s, {mb / wall:.1f} MB/s "
        f"({mb / wall / int(threads):.1f} a thread); encoding alone {encoding:.1f} s, {mb / encoding:.1f} MB/s"
    )


main()
