# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""What a run leaves, as arrays: NumPy's where it is installed, else Python's own (docs/formats.md).

Nothing is checked against checksums here; `mics verify` does that.
"""

import array
import collections
import json
import math
import mmap
import os
import re
import struct
import tempfile

from . import _program
from ._library import Error

try:
    import numpy
except ImportError:
    numpy = None

# ---- metrics.jsonl ----


def _metrics_path(run):
    run = os.fspath(run)
    return os.path.join(run, "metrics.jsonl") if os.path.isdir(run) else run


def _lines(path):
    with open(path, "rb") as file:
        for line in file:
            if line.endswith(b"\n"):  # else a crash, or the run that writes now, has cut it short
                yield json.loads(line)


def _column(name, values):
    if name in ("step", "phase", "tokens") or name.endswith("_bytes"):
        kind, values = "q", [0 if value is None else value for value in values]
    else:
        kind, values = "d", [math.nan if value is None else value for value in values]
    return array.array(kind, values) if numpy is None else numpy.array(values, dtype=kind)


def metrics(run, validation=False):
    """The columns of a run's metrics.jsonl: {"step": array, "loss": array, ...}; null is NaN.

    run: the run's folder, or the file.
    validation: those of validations, which have lines of their own, in place of those of steps.
    """
    key = "validation_loss" if validation else "loss"
    rows = [row for row in _lines(_metrics_path(run)) if key in row]
    names = dict.fromkeys(name for row in rows for name in row) or ("step", key)
    return {name: _column(name, [row.get(name) for row in rows]) for name in names}


def newest_line(run, key):
    """The newest line that has a key, of those at the end of the file; {}: none has."""
    try:
        with open(_metrics_path(run), "rb") as file:
            file.seek(max(0, os.path.getsize(file.name) - (1 << 16)))
            lines = file.read().split(b"\n")[:-1]
    except FileNotFoundError:
        return {}
    for line in reversed(lines):
        if f'"{key}":'.encode() in line:
            return json.loads(line)
    return {}


# ---- safetensors ----

_KINDS = {
    "F64": "d",
    "F32": "f",
    "F16": "e",
    "I64": "q",
    "I32": "i",
    "I16": "h",
    "I8": "b",
    "U8": "B",
    "BOOL": "?",
}


def _widened(raw):
    """BF16 as F32, whose upper half it is."""
    wide = bytearray(2 * len(raw))
    wide[2::4], wide[3::4] = raw[0::2], raw[1::2]
    return wide


def _tensor(raw, dtype, shape):
    if dtype not in _KINDS and dtype != "BF16":
        raise Error(f"a tensor of {dtype}, which no array here can hold")
    if numpy is not None and dtype == "BF16":
        return (numpy.ndarray(shape, "<u2", raw).astype("<u4") << 16).view("<f4")
    if numpy is not None:
        return numpy.ndarray(shape, _KINDS[dtype], raw)
    if dtype == "F16":
        raw, dtype = array.array("f", struct.unpack(f"<{len(raw) // 2}e", raw)), "F32"
    if dtype == "BF16":
        raw, dtype = _widened(raw), "F32"
    flat = memoryview(raw).cast("B")
    # A view of no element, or of no dimension, has no shape to be given.
    return flat.cast(_KINDS[dtype], shape) if shape and 0 not in shape else flat.cast(_KINDS[dtype])


class _Safetensors:
    def __init__(self, path):
        with open(path, "rb") as file:
            try:
                head = struct.unpack("<Q", file.read(8))[0]
                self.header = json.loads(file.read(head))
            except (struct.error, ValueError, MemoryError, OverflowError):
                raise Error(f"{path}: no .safetensors file") from None
            self.header.pop("__metadata__", None)
            self.data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY))[8 + head :]

    def read(self, name):
        of = self.header[name]
        begin, end = of["data_offsets"]
        return _tensor(self.data[begin:end], of["dtype"], tuple(of["shape"]))


def _files_of_model(folder):
    index = os.path.join(folder, "model.safetensors.index.json")
    for name in ("model.safetensors", "adapter_model.safetensors"):
        if os.path.exists(os.path.join(folder, name)):
            return [name]
    if os.path.exists(index):
        with open(index, encoding="utf-8") as file:
            return sorted(set(json.load(file)["weight_map"].values()))
    return []


def _tensors(folder):
    tensors = {}
    for name in _files_of_model(folder):
        file = _Safetensors(os.path.join(folder, name))
        tensors.update((key, file.read(key)) for key in file.header)
    return tensors


def weights(path):
    """Parameters by Hugging Face's names: {"transformer.wte.weight": array, ...}.

    path: a folder with safetensors, or a run's or a checkpoint's, which is converted first.
    BF16 comes as float32, which has the same numbers. Arrays are the caller's own to change.
    """
    path = os.fspath(path)
    if _files_of_model(path):
        return _tensors(path)
    with tempfile.TemporaryDirectory(prefix="mics-") as folder:
        _program.run("convert", [path, os.path.join(folder, "model")])
        return _tensors(os.path.join(folder, "model"))  # mapped: they outlive their names


# ---- checkpoints ----


def _manifest(folder):
    try:
        with open(os.path.join(folder, "manifest.json"), encoding="utf-8") as file:
            return json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return None


def newest_checkpoint(path):
    """The step's folder that `latest` names, or if that is not whole the one saved last; None."""
    path = os.fspath(path)
    folder = os.path.join(path, "checkpoints")
    folder = folder if os.path.isdir(folder) else path
    try:
        with open(os.path.join(folder, "latest"), encoding="utf-8") as file:
            named = os.path.join(folder, file.read().strip())
    except FileNotFoundError:
        named = None
    if named is not None and _manifest(named) is not None:
        return named
    found = []
    for name in os.listdir(folder) if os.path.isdir(folder) else []:
        manifest = _manifest(os.path.join(folder, name)) if name.startswith("step-") else None
        if manifest is not None:
            found.append((manifest["serial"], manifest["step"], name))
    return os.path.join(folder, max(found)[2]) if found else None


_Shard = collections.namedtuple("_Shard", "begin end file tensor")


class Checkpoint:
    """A checkpoint as it lies on disk: each unit is one flat array, in one or more states.

    path: a step's folder, or that of a run, whose newest checkpoint is taken.
    step, manifest: as saved; config and run: the model's configuration and the resolved run.
    units: the length of each unit, by its name.
    """

    def __init__(self, path):
        path = os.fspath(path)
        self.folder = path if _manifest(path) is not None else newest_checkpoint(path)
        if self.folder is None:
            raise Error(f"{path}: no checkpoint is there; give a step's folder, or a run's")
        self.manifest = _manifest(self.folder)
        if self.manifest.get("format") != "mics-checkpoint" or self.manifest.get("version") != 3:
            raise Error(f"{self.folder}: of another version; only version 3 is read here")
        self.step = self.manifest["step"]
        self.config = json.loads(self.manifest["config"])
        self.run = json.loads(self.manifest["run"]) if self.manifest["run"] else None
        self.units = {}
        self._shards = collections.defaultdict(list)
        for file in self.manifest["files"]:
            self._add(_Safetensors(os.path.join(self.folder, file["name"])))

    def _add(self, file):
        for tensor in file.header:
            at = re.fullmatch(r"(.*)\.([^.]+)\[(\d+):(\d+) of (\d+)\]", tensor)
            if at is None:
                raise Error(f"{self.folder}: {tensor}: no shard's name")
            begin, end, length = map(int, at.group(3, 4, 5))
            self.units[at[1]] = length
            self._shards[at[1], at[2]].append(_Shard(begin, end, file, tensor))

    def states(self, unit):
        """ "param" and what the optimizer keeps: ["param", "exp_avg", "exp_avg_sq"]."""
        return [state for name, state in self._shards if name == unit]

    def read(self, unit, state="param"):
        """All of a unit in one state, float32, put together from the shards of all ranks."""
        if (unit, state) not in self._shards:
            raise KeyError(f"{self.folder} has no {unit}.{state}; its units: {', '.join(self.units)}")
        at, parts = 0, []
        for shard in sorted(self._shards[unit, state], key=lambda shard: shard[:2]):
            if shard.begin != at:
                raise Error(
                    f"{self.folder}: {unit}.{state}: elements {at} to {shard.begin} are missing or double"
                )
            parts.append(shard.file.read(shard.tensor))
            at = shard.end
        if at != self.units[unit]:
            raise Error(f"{self.folder}: {unit}.{state}: ends at element {at} of {self.units[unit]}")
        return numpy.concatenate(parts) if numpy is not None else memoryview(b"".join(parts)).cast("f")
