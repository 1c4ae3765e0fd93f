#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/parquet: Parquet files by pyarrow, and their rows as JSON Lines.

    pip install pyarrow
    tools/make_parquet_golden.py [FOLDER]

NAME.parquet and NAME-HOW.parquet have the rows of NAME.jsonl, byte for byte as mics writes them.
refused-NAME.parquet is not read.
"""
import datetime
import decimal
import json
import math
import random
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TEXTS = ["", "a", "plain words, and more of them", "\"quoted\" \\ back", "line\nend\r\ttab\b\f", "nul\0and\x01\x1f\x7f",
         "\u00e9\u4f60\u597d\U0001f600", "<|im_start|>", "x" * 300]

# Characters that mics_text_quoted escapes.
ESCAPES = {chr(c): f"\\u{c:04x}" for c in [*range(32), 127]} | {c: json.dumps(c)[1:-1] for c in '"\\\n\r\t'}


def number(value):
    """A real as mics_text_real writes it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    for digits in range(6, 18):
        text = f"{value:.{digits}g}"
        if float(text) == value:
            return text
    raise ValueError(value)


def row_text(value):
    if isinstance(value, dict):
        return "{" + ",".join(row_text(k) + ":" + row_text(v) for k, v in value.items()) + "}"
    if isinstance(value, tuple):  # of a map
        raise TypeError(value)
    if isinstance(value, list):
        if value and isinstance(value[0], tuple):
            return "{" + ",".join(row_text(k) + ":" + row_text(v) for k, v in value) + "}"
        return "[" + ",".join(row_text(v) for v in value) + "]"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, str):
        return '"' + "".join(ESCAPES.get(c, c) for c in value) + '"'
    return json.dumps(value)


def lines(table):
    """The rows; an empty map is told from an empty list by its type."""
    out = []
    for row in table.to_pylist():
        for field in table.schema:
            if pa.types.is_map(field.type) and row[field.name] == []:
                row[field.name] = {}
        out.append(row_text(row) + "\n")
    return "".join(out)


def maybe(chance, value):
    return None if random.random() < chance else value()


def text():
    return random.choice(TEXTS) + str(random.randrange(9))


CALL = pa.struct([("name", pa.string()), ("arguments", pa.string())])
MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string()), ("tool_calls", pa.list_(CALL))]))


def call():
    return {"name": text(), "arguments": maybe(0.2, lambda: json.dumps({"q": text()}))}


def message():
    calls = maybe(0.6, lambda: [maybe(0.1, call) for _ in range(random.randrange(3))])
    return {"role": random.choice(["system", "user", "assistant"]), "content": maybe(0.2, text), "tool_calls": calls}


def mixed(rows):
    """All that is read, with nulls at each level."""
    deep = pa.list_(pa.list_(pa.list_(pa.int32())))
    columns = {
        "text": (pa.string(), lambda: maybe(0.2, text)),
        "same": (pa.string(), lambda: "always"),
        "none": (pa.null(), lambda: None),
        "n": (pa.int64(), lambda: maybe(0.2, lambda: random.choice([0, -1, 2**63 - 1, -2**63, random.randrange(99)]))),
        "u": (pa.uint64(), lambda: random.choice([0, 2**64 - 1, 7])),
        "small": (pa.int8(), lambda: random.randrange(-128, 128)),
        "wide": (pa.uint32(), lambda: random.choice([0, 2**32 - 1])),
        "real": (pa.float64(), lambda: maybe(0.2, lambda: random.choice(
            [0.0, -0.5, 1e300, 0.1, math.nan, math.inf, -math.inf, 100000.0, random.random()]))),
        "single": (pa.float32(), lambda: random.choice([0.1, 1.5, -3e38])),
        "flag": (pa.bool_(), lambda: maybe(0.2, lambda: random.random() < 0.5)),
        "tags": (pa.list_(pa.string()), lambda: maybe(0.2, lambda: [maybe(0.2, text) for _ in range(random.randrange(4))])),
        "messages": (MESSAGES, lambda: maybe(0.1, lambda: [maybe(0.1, message) for _ in range(random.randrange(4))])),
        "deep": (deep, lambda: maybe(0.1, lambda: [maybe(0.2, lambda: [
            maybe(0.2, lambda: [maybe(0.2, lambda: random.randrange(9)) for _ in range(random.randrange(3))])
            for _ in range(random.randrange(3))]) for _ in range(random.randrange(3))])),
        "place": (pa.struct([("x", pa.float64()), ("in", pa.struct([("ok", pa.bool_())]))]),
                  lambda: maybe(0.2, lambda: {"x": maybe(0.2, lambda: 0.25), "in": maybe(0.3, lambda: {"ok": True})})),
        "map": (pa.map_(pa.string(), pa.int32()), lambda: maybe(0.2, lambda: [
            (f"k{i}", maybe(0.2, lambda: random.randrange(9))) for i in range(random.randrange(3))])),
        "large": (pa.large_string(), text),
    }
    return pa.table({name: pa.array([make() for _ in range(rows)], kind) for name, (kind, make) in columns.items()})


def write(folder, name, table, **options):
    pq.write_table(table, folder / f"{name}.parquet", **options)
    (folder / f"{name.split('-')[0]}.jsonl").write_text(lines(table), encoding="utf-8", newline="")


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "tests/golden/parquet")
    folder.mkdir(parents=True, exist_ok=True)
    random.seed(1)
    # Pages of 300 bytes and groups of 40 rows: columns have several of both.
    rows = mixed(50)
    for codec in ["none", "snappy", "gzip", "zstd"]:
        for version in ["1.0", "2.0"]:
            for dictionary in ["dictionary", "plain"]:
                write(folder, f"mixed-{codec}-v{version[0]}-{dictionary}", rows, compression=codec,
                      data_page_version=version, use_dictionary=dictionary == "dictionary", data_page_size=300,
                      write_batch_size=16, row_group_size=40, write_page_checksum=codec != "gzip")
    words = pa.table({"id": list(range(400)), "text": [random.choice(TEXTS[1:5]) * (i % 5) for i in range(400)]})
    write(folder, "text", words, compression="zstd", row_group_size=150, data_page_size=2000)
    # More strings than a dictionary takes: pages of indices, and then plain ones.
    write(folder, "full", pa.table({"text": [f"text {i} {i * i}" for i in range(600)]}),
          dictionary_pagesize_limit=2000, data_page_size=700, write_batch_size=50)
    write(folder, "empty", mixed(0))
    write(folder, "required", pa.table({"text": ["a", "b"], "n": [1, 2]}, pa.schema(
        [pa.field("text", pa.string(), nullable=False), pa.field("n", pa.int16(), nullable=False)])))
    lines = (folder.parent / "chat" / "chats.jsonl").read_text(encoding="utf-8").splitlines()
    chats = [json.loads(line)["messages"] for line in lines[:20]]
    write(folder, "chats", pa.table({"id": list(range(len(chats))), "messages": chats}), compression="snappy")
    # Chats beside pictures as datasets hold them, and beside none.
    for name, images in [("paths", pa.array([["a.png"]] * 2)), ("bytes", pa.array([[{"bytes": b"\x89PNG", "path": "a"}]] * 2)),
                         ("none", pa.array([[], None], pa.list_(pa.string()))), ("nulls", pa.nulls(2))]:
        pq.write_table(pa.table({"messages": chats[:2], "images": images}), folder.parent / "pictures" / f"{name}.parquet")
    day = datetime.datetime(2026, 1, 1)
    for name, column, options in [
            ("decimal", pa.array([decimal.Decimal("1.25")]), {}),
            ("timestamp", pa.array([day]), {}),
            ("date", pa.array([day.date()]), {}),
            ("int96", pa.array([day]), {"use_deprecated_int96_timestamps": True}),
            ("binary", pa.array([b"bytes"]), {}),
            ("fixed", pa.array([b"ab"], pa.binary(2)), {}),
            ("half", pa.array([1.5], pa.float16()), {}),
            ("map", pa.array([[(1, "a")]], pa.map_(pa.int32(), pa.string())), {}),
            ("nested", pa.array([[{"at": day}]]), {}),
            ("long", pa.array([["x" * 300] * 60000]), {}),  # 18 MB, by indices that are all the same
            ("brotli", pa.array(["text"]), {"compression": "brotli"}),
            ("lz4", pa.array(["text"]), {"compression": "lz4"}),
            ("delta", pa.array(["text"]), {"use_dictionary": False, "column_encoding": {"x": "DELTA_BYTE_ARRAY"}})]:
        pq.write_table(pa.table({"text": ["text"], "x": column}), folder / f"refused-{name}.parquet", **options)


if __name__ == "__main__":
    main()
