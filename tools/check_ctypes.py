#!/usr/bin/env python3
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
"""check_ctypes.py: structures and functions of python/mics/_library.py are as the headers declare them.

Has the C compiler (CC, else cc) decide: of structures the place and type of each field, of functions the prototype.
"""

import ctypes
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))
from mics import _library  # pylint: disable=wrong-import-position

# Enums and pointers are told by their size.
NUMBERS = {
    ctypes.c_int32: "int32_t",
    ctypes.c_int64: "int64_t",
    ctypes.c_double: "double",
    ctypes.c_bool: "_Bool",
}


def assertions(name, structure):
    for field, kind in structure._fields_:
        place = getattr(structure, field)
        member = f"(({name} *)0)->{field}"
        at = f"offsetof({name}, {field}) == {place.offset} && sizeof {member} == {place.size}"
        yield at, f"{name}.{field}"
        if kind in NUMBERS:
            yield f"_Generic({member}, {NUMBERS[kind]}: 1, default: 0)", f"{name}.{field} is no {NUMBERS[kind]}"
    if structure is not _library.Metrics:  # which is how a longer one begins
        yield f"sizeof({name}) == {ctypes.sizeof(structure)}", f"{name} has other fields"


def program():
    yield "#include <mics/mics.h>\n#include <stddef.h>"
    yield _library.PROTOTYPES
    yield f'_Static_assert(MICS_METRICS_TEXT_BYTES == {_library.METRICS_TEXT_BYTES}, "METRICS_TEXT_BYTES");'
    for name, structure in _library.STRUCTURES.items():
        for holds, what in assertions(name, structure):
            yield f'_Static_assert({holds}, "{what}");'


def main():
    command = [os.environ.get("CC", "cc"), "-std=c11", "-fsyntax-only", f"-I{ROOT / 'include'}", "-x", "c", "-"]
    done = subprocess.run(command, input="\n".join(program()), text=True, check=False)
    if done.returncode != 0:
        sys.exit("python/mics/_library.py: declares something else than include/mics")
    functions = len(_library.PROTOTYPES.splitlines()) - 1
    print(f"{len(_library.STRUCTURES)} structures and {functions} functions are as declared")


main()
