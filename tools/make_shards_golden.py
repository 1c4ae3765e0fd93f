#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/shards/: Megatron's .bin and .idx, and nanoGPT's .bin, written as their formats say.

    tools/make_shards_golden.py tests/golden/shards

Each holds the same three documents, of 5, 0 and 3 tokens in the sequences 2 + 3, none, and 3: 10, 11, ... 17.
Sources: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py; github.com/karpathy/nanoGPT,
data/openwebtext/prepare.py.
"""

import os
import struct
import sys

TOKENS = list(range(10, 18))
SEQUENCES, DOCUMENTS = [2, 3, 3], [0, 2, 2, 3]
# Codes and sizes of Megatron's DType.
TYPES = {"uint8": (1, "B"), "int8": (2, "b"), "int16": (3, "h"), "int32": (4, "i"), "int64": (5, "q"), "uint16": (8, "H")}


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)
    for name, (code, letter) in TYPES.items():
        with open(f"{folder}/megatron-{name}.bin", "wb") as file:
            file.write(struct.pack(f"<{len(TOKENS)}{letter}", *TOKENS))
        width = struct.calcsize(letter)
        pointers = [sum(SEQUENCES[:i]) * width for i in range(len(SEQUENCES))]
        with open(f"{folder}/megatron-{name}.idx", "wb") as file:
            file.write(b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, len(SEQUENCES), len(DOCUMENTS)))
            file.write(struct.pack(f"<{len(SEQUENCES)}i", *SEQUENCES))
            file.write(struct.pack(f"<{len(pointers)}q", *pointers))
            file.write(struct.pack(f"<{len(DOCUMENTS)}q", *DOCUMENTS))
    with open(f"{folder}/nanogpt.bin", "wb") as file:
        file.write(struct.pack(f"<{len(TOKENS)}H", *TOKENS))


main()
