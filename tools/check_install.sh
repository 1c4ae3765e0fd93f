#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds what is committed as a stranger would, in a fresh clone and without the optional parts,
# installs it to a temporary folder by `make install`, which must build what `make demo` has not and ask no package
# manager, moves that, and compiles programs against what was installed.
#
#   tools/check_install.sh
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

git -c advice.detachedHead=false clone -q --no-hardlinks . "$work/clone"
cmake -S "$work/clone" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DMICS_WERROR=ON \
    -DMICS_MPI=OFF -DMICS_TESTS=OFF -DMICS_BENCH=OFF -DMICS_CUDA=OFF >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/build" -j "${JOBS:-$(nproc)}" --target mics_cli >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mkdir "$work/managers"
for manager in apt-get apt-cache sudo; do
    printf '#!/bin/sh\necho "make install called %s" >&2\ntouch "%s"\nexit 1\n' $manager "$work/asked" >"$work/managers/$manager"
done
chmod +x "$work"/managers/*
PATH=$work/managers:$PATH make -C "$work/clone" install BUILD="$work/build" PREFIX="$work/first" >"$work/log" 2>&1 ||
    { cat "$work/log"; exit 1; }
[ ! -e "$work/asked" ] || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/installed"
rm -rf "$work/build"

installed=$work/installed
mkdir "$work/user"
(cd "$installed/include" && printf '#include "%s"\n' mics/*.h) >"$work/user/every_header.h"
flags=(-Wall -Wextra -Wpedantic -Werror -I"$work/user")
consumer=$PWD/tests/install/consumer.c

PKG_CONFIG_PATH=$(dirname "$(find "$installed" -name mics.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir mics)
# Word splitting of pkg-config's answers is meant.
# shellcheck disable=SC2046
{
    "${CC:-cc}" -std=c11 "${flags[@]}" $(pkg-config --cflags mics) "$consumer" -o "$work/user/c" \
        $(pkg-config --libs mics)
    "${CXX:-c++}" -std=c++17 -x c++ "${flags[@]}" $(pkg-config --cflags mics) "$consumer" \
        -o "$work/user/cxx" $(pkg-config --libs mics)
    "${CC:-cc}" -std=c11 "${flags[@]}" $(pkg-config --cflags mics) "$consumer" -o "$work/user/static" \
        "$libdir/libmics.a" $(pkg-config --static --libs mics)
    "${CC:-cc}" -std=c11 "${flags[@]}" $(pkg-config --cflags mics) examples/train.c -o "$work/user/train" \
        $(pkg-config --libs mics)
}
LD_LIBRARY_PATH=$libdir "$work/user/c"
LD_LIBRARY_PATH=$libdir "$work/user/cxx"
"$work/user/static"
cmake -S tests/install -B "$work/user/cmake" -DCMAKE_PREFIX_PATH="$installed" \
    -DEVERY_HEADER_DIR="$work/user" >/dev/null
cmake --build "$work/user/cmake" >/dev/null
"$work/user/cmake/consumer_mics"
"$work/user/cmake/consumer_static"

# A training by the installed library, begun by one program and found finished by the other.
sed -e 's/"steps": 1000/"steps": 4/' -e "s#runs/demo#$work/run#" examples/demo.json >"$work/user/run.json"
LD_LIBRARY_PATH=$libdir "$work/user/train" "$work/user/run.json" 2 >"$work/user/steps"
grep -q '^step 4/4  loss ' "$work/user/steps"
test -z "$(LD_LIBRARY_PATH=$libdir "$work/user/cmake/train" "$work/user/run.json" 2)"

if [ -x "$installed/bin/mics" ]; then
    LD_LIBRARY_PATH=$libdir "$installed/bin/mics" --help >/dev/null
    test -s "$installed/share/man/man1/mics.1"
fi
echo "install check: C, C++, static, pkg-config and CMake package work, and an example trains"
