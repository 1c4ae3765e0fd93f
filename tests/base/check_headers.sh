#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# check_headers.sh ROOT CC CXX: every public header compiles alone, twice over, as C11 and as C++17, and
# mics.h includes it, if it is none of mics/core.
# Exits 77 (skipped) when there is no C++ compiler and C is fine.
set -u
root=$1 cc=$2 cxx=$3
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only -I$root/include"
failed=0
found=0
command -v "$cxx" >/dev/null 2>&1 || cxx=

for header in "$root"/include/mics/*.h "$root"/include/mics/core/*.h; do
    name=${header#"$root"/include/}
    found=$((found + 1))
    if [ "$name" != mics/mics.h ] && [ "${name#mics/core/}" = "$name" ] && ! grep -qx "#include \"$name\"" "$root/include/mics/mics.h"; then
        echo "mics/mics.h does not include $name"
        failed=1
    fi
    text=$(printf '#include "%s"\n#include "%s"\n' "$name" "$name")
    # shellcheck disable=SC2086
    if ! printf '%s\n' "$text" | "$cc" -std=c11 -x c $warnings -Wstrict-prototypes -; then
        echo "$name does not compile alone as C11"
        failed=1
    fi
    # shellcheck disable=SC2086
    if [ -n "$cxx" ] && ! printf '%s\n' "$text" | "$cxx" -std=c++17 -x c++ $warnings -; then
        echo "$name does not compile alone as C++17"
        failed=1
    fi
done

[ "$found" -gt 0 ] || { echo "no headers under $root/include/mics"; exit 1; }
[ "$failed" -eq 0 ] || exit 1
echo "$found headers compile alone"
[ -n "$cxx" ] || { echo "C++17 was not checked: no C++ compiler"; exit 77; }
