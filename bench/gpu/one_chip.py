#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""A copy of a library whose GPU code is that of one chip, so that it can be packed.

usage: one_chip.py LIBRARY SM COPY          SM: 90 for compute capability 9.0

A library carries its kernels once for each chip, in two sections of containers. A container is a head (a magic number, the
length of the head, the bytes behind it) and elements, each a head (kind, length of the head, bytes of the payload, chip) and
a payload. `.nv_fatbin` has what CUDA loads; `__nv_relfatbin` what it was linked from, which only a chip that nothing was
linked for has a use for. The copy has zeros in the place of every payload but those for the chip in `.nv_fatbin`. No byte
moves and no head changes, so CUDA finds what it looks for where it was. Zeros take no room in an archive.

It prints what is kept. What is not laid out like this, or has nothing for the chip, is an error with status 1, and no copy.
"""
import struct
import sys

LINKED, PARTS = ".nv_fatbin", "__nv_relfatbin"
MAGIC, MACHINE_CODE = 0xBA55ED50, 2


def sections(data):
    """Name, offset and bytes of each section of a 64-bit little-endian ELF file."""
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it is no 64-bit ELF file")
    (table,), (size, count, names) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HHH", data, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", data, table + size * i) for i in range(count)]
    for head in heads:
        start = heads[names][4] + head[0]
        yield data[start : data.index(b"\0", start)].decode(), head[4], head[5]


def elements(data, offset, end):
    """Kind, chip, offset and bytes of each payload of a section."""
    while offset < end:
        magic, _, head, size = struct.unpack_from("<IHHQ", data, offset)
        if magic == 0 and not any(data[offset : offset + 8]):
            offset += 8  # containers are aligned
            continue
        if magic != MAGIC or head < 16 or offset + head + size > end:
            raise ValueError(f"there is no container at {offset:#x}")
        offset, stop = offset + head, offset + head + size
        while offset < stop:
            kind, _, head, size = struct.unpack_from("<HHIQ", data, offset)
            (chip,) = struct.unpack_from("<I", data, offset + 28)
            if head < 32 or offset + head + size > stop:
                raise ValueError(f"there is no element at {offset:#x}")
            yield kind, chip, offset + head, size
            offset += head + size


def prune(data, chip):
    """Changes the bytes. Returns the payloads kept, the bytes of them and of those that are zeros now."""
    kept, kept_bytes, zeroed_bytes = 0, 0, 0
    for name, offset, size in list(sections(data)):
        if name not in (LINKED, PARTS):
            continue
        for kind, of, start, length in list(elements(data, offset, offset + size)):
            if name == LINKED and kind == MACHINE_CODE and of == chip:
                kept, kept_bytes = kept + 1, kept_bytes + length
            else:
                data[start : start + length] = bytes(length)
                zeroed_bytes += length
    if kept == 0:
        raise ValueError(f"it has no code for compute capability {chip / 10}")
    return kept, kept_bytes, zeroed_bytes


def main():
    if len(sys.argv) != 4 or not sys.argv[2].isdigit():
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        return 2
    path, chip, copy = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    try:
        with open(path, "rb") as file:
            data = bytearray(file.read())
        kept, kept_bytes, zeroed_bytes = prune(data, chip)
        with open(copy, "wb") as file:
            file.write(data)
    except (OSError, ValueError, struct.error) as error:
        print(f"one_chip.py: {path}: {error}", file=sys.stderr)
        return 1
    print(f"{kept} modules of {kept_bytes / 2**20:.1f} MiB for compute capability {chip / 10}; "
          f"{zeroed_bytes / 2**20:.1f} MiB are zeros now")
    return 0


if __name__ == "__main__":
    sys.exit(main())
