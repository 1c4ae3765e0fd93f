#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/safetensors with the reference implementation (pip install "safetensors>=0.8" numpy).

Element i of a tensor is i / 4 - 3, which every dtype holds exactly; "half.edges" has the binary16
values whose conversion is special. tests/io/checkpoint/test_safetensors.c knows both.

  python3 tools/make_safetensors_golden.py tests/golden/safetensors
  python3 tools/make_safetensors_golden.py --check FOLDER    reads what mics wrote, the same values
"""

import glob
import json
import os
import sys

import numpy as np
from safetensors import TensorSpec, safe_open, serialize_file


def values(shape):
    return (np.arange(int(np.prod(shape)), dtype=np.float64) / 4 - 3).reshape(shape)


def write(path, tensors, metadata):
    """`tensors`: name to (array, dtype). A TensorSpec borrows the array's memory."""
    specs = {
        name: TensorSpec(dtype=dtype, shape=array.shape, data_ptr=array.ctypes.data, data_len=array.nbytes)
        for name, (array, dtype) in tensors.items()
    }
    serialize_file(specs, path, metadata)


def bf16(array):
    """The high halves of fp32; exact for these values."""
    return (array.astype("<f4").view("<u4") >> 16).astype("<u2")


def make(folder):
    os.makedirs(os.path.join(folder, "sharded"), exist_ok=True)
    edges = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0xFC00], "<u2")
    tensors = {
        "single": (values((3, 5)).astype("<f4"), "float32"),
        "half": (values((7,)).astype("<f2"), "float16"),
        "half.edges": (edges, "float16"),
        "brain": (bf16(values((2, 3))), "bfloat16"),
        "double": (values((2, 2, 2)).astype("<f8"), "float64"),
        "integers": (np.arange(4, dtype="<i8"), "int64"),
        "bytes": (np.arange(3, dtype="u1"), "uint8"),
        "scalar": (np.array(-3.0, dtype="<f4"), "float32"),
        "empty": (np.zeros((0, 4), dtype="<f4"), "float32"),
    }
    metadata = {"format": "pt", "note": "quote \" and \u00e9"}
    write(os.path.join(folder, "dtypes.safetensors"), tensors, metadata)
    weight_map = {}
    for number, names in enumerate((["a", "c"], ["b"]), 1):
        name = f"model-{number:05d}-of-00002.safetensors"
        tensors = {key: (values((4, 3)).astype("<f4"), "float32") for key in names}
        write(os.path.join(folder, "sharded", name), tensors, {"format": "pt"})
        weight_map.update({key: name for key in names})
    index = {"metadata": {"total_size": 3 * 48}, "weight_map": weight_map}
    with open(os.path.join(folder, "sharded", "model.safetensors.index.json"), "w") as file:
        json.dump(index, file, indent=2)


def check(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    weight_map = json.load(open(index))["weight_map"] if os.path.exists(index) else None
    seen = {}
    for path in sorted(glob.glob(os.path.join(folder, "*.safetensors"))):
        with safe_open(path, "numpy") as file:
            assert file.metadata() == {"format": "pt"}, path
            for name in file.keys():
                tensor = file.get_tensor(name)
                assert tensor.dtype == np.float32 and np.array_equal(tensor, values(tensor.shape)), name
                seen[name] = os.path.basename(path)
    assert weight_map is None or weight_map == seen, (weight_map, seen)
    print(f"{folder}: {len(seen)} tensors in {len(set(seen.values()))} files, as written")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--check":
        check(sys.argv[2])
    elif len(sys.argv) == 2:
        make(sys.argv[1])
    else:
        sys.exit(__doc__)
