#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a checkpoint folder with Python's safetensors and numpy, as docs/formats.md describes it,
and prints each state of each unit: its elements, and their sum in double precision, added up in
order.

usage: check_checkpoint.py FOLDER"""
import re
import sys
from pathlib import Path

from safetensors import safe_open

parts = {}  # (unit, state): {begin: (end, unit's elements, data)}
files = sorted(Path(sys.argv[1]).glob("rank-*.safetensors"))
for path in files:
    with safe_open(path, "numpy") as file:
        metadata = file.metadata()
        if metadata["format"] != "mics-rank-file" or metadata["writers"] != str(len(files)):
            sys.exit(f"{path}: is not one of the {len(files)} files of a checkpoint")
        for name in file.keys():
            parsed = re.fullmatch(r"(.+)\.([^.]+)\[(\d+):(\d+) of (\d+)\]", name)
            unit, state, *numbers = parsed.groups()
            begin, end, elems = map(int, numbers)
            if begin < end:
                parts.setdefault((unit, state), {})[begin] = (end, elems, file.get_tensor(name))
for (unit, state), ranges in sorted(parts.items()):
    at, total = 0, 0.0
    for begin, (end, elems, data) in sorted(ranges.items()):
        if begin != at or len(data) != end - begin:
            sys.exit(f"{unit}.{state}: element {at} is in no file, or in two")
        for element in data.tolist():
            total += element
        at = end
    if at != elems:
        sys.exit(f"{unit}.{state}: ends at element {at} of {elems}")
    print(unit, state, elems, f"{total:.17g}")
