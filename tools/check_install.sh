#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds what is committed as a stranger would, in a fresh clone and without the optional parts.
# Installs it to a temporary folder by `make install`, which must build what `make demo` has not and
# ask no package manager, and packs it by `make package`. Moves the folder, unpacks the packages
# elsewhere, runs the program of each and compiles programs against them.
#
#   tools/check_install.sh [CMAKE_OPTION...]
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(realpath "$(mktemp -d)")
trap 'rm -rf "$work"' EXIT

git -c advice.detachedHead=false clone -q --no-hardlinks . "$work/clone"
cmake -S "$work/clone" -B "$work/build" -DCMAKE_BUILD_TYPE=Release -DMICS_WERROR=ON \
    -DMICS_MPI=OFF -DMICS_TESTS=OFF -DMICS_BENCH=OFF -DMICS_CUDA=OFF "$@" >"$work/log" || { cat "$work/log"; exit 1; }
cmake --build "$work/build" -j "${JOBS:-$(nproc)}" --target mics_cli >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
mkdir "$work/managers"
for manager in apt-get apt-cache sudo; do
    printf '#!/bin/sh\necho "make install called %s" >&2\ntouch "%s"\nexit 1\n' $manager "$work/asked" >"$work/managers/$manager"
done
chmod +x "$work"/managers/*
for target in install package; do
    PATH=$work/managers:$PATH make -C "$work/clone" "$target" BUILD="$work/build" \
        PREFIX="$work/first" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
done
[ ! -e "$work/asked" ] || { cat "$work/log"; exit 1; }
mv "$work/first" "$work/installed"
mkdir "$work/unpacked"
tar -C "$work/unpacked" --strip-components 1 -xf "$work"/build/mics-*.tar.xz
mv "$work"/build/mics_*.deb "$work/mics.deb" 2>/dev/null || true
rm -rf "$work/build"

mkdir "$work/user"
(cd "$work/installed/include" && printf '#include "%s"\n' mics/*.h mics/core/*.h) >"$work/user/every_header.h"
flags=(-Wall -Wextra -Wpedantic -Werror -I"$work/user")
consumer=$PWD/tests/install/consumer.c

libdir_of() {
    dirname "$(dirname "$(find "$1" -name mics.pc)")"
}

# The program in a prefix: it runs without help, and looks for the plugin in its own prefix.
check_program() {
    local prefix=$1 libdir=$2 status=0
    "$prefix/bin/mics" --help >/dev/null
    echo "no library" >"$libdir/libmics_cuda.so"
    env -u MICS_CUDA_PLUGIN "$prefix/bin/mics" doctor >"$work/doctor"
    rm "$libdir/libmics_cuda.so"
    grep -q "$prefix/.*libmics_cuda.so cannot be opened" "$work/doctor" || { cat "$work/doctor"; exit 1; }
    test -s "$prefix/share/man/man1/mics.1"
    sh tests/base/check_runpath.sh "" "$prefix/bin/mics" "$libdir/libmics.so" || status=$?
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ]
}

# Programs of a user, against the library in a prefix.
check_library() {
    local prefix=$1 libdir=$2 out=$work/user/${1##*/}
    export PKG_CONFIG_PATH=$libdir/pkgconfig
    mkdir "$out"
    # Word splitting of pkg-config's answers is meant.
    # shellcheck disable=SC2046
    {
        "${CC:-cc}" -std=c11 "${flags[@]}" $(pkg-config --cflags mics) "$consumer" -o "$out/c" \
            $(pkg-config --libs mics)
        "${CXX:-c++}" -std=c++17 -x c++ "${flags[@]}" $(pkg-config --cflags mics) "$consumer" \
            -o "$out/cxx" $(pkg-config --libs mics)
        "${CC:-cc}" -std=c11 "${flags[@]}" $(pkg-config --cflags mics) "$consumer" -o "$out/static" \
            "$libdir/libmics.a" $(pkg-config --static --libs mics)
        for example in train custom_model own_loop; do
            "${CC:-cc}" -std=c11 "${flags[@]}" $(pkg-config --cflags mics) examples/$example.c -o "$out/$example" \
                $(pkg-config --libs mics)
        done
    }
    LD_LIBRARY_PATH=$libdir "$out/c"
    LD_LIBRARY_PATH=$libdir "$out/cxx"
    "$out/static"
    cmake -S tests/install -B "$out/cmake" -DCMAKE_PREFIX_PATH="$prefix" \
        -DEVERY_HEADER_DIR="$work/user" >/dev/null
    cmake --build "$out/cmake" >/dev/null
    "$out/cmake/consumer_mics"
    "$out/cmake/consumer_static"
    # A training by the library, begun by one program and found finished by the other.
    sed -e 's/"steps": 1000/"steps": 4/' -e "s#runs/demo#$out/run#" examples/demo.json >"$out/run.json"
    LD_LIBRARY_PATH=$libdir "$out/train" "$out/run.json" 2 >"$out/steps"
    grep -q '^step 4/4  loss ' "$out/steps"
    test -z "$(LD_LIBRARY_PATH=$libdir "$out/cmake/train" "$out/run.json" 2)"
    # A model of the program's own.
    LD_LIBRARY_PATH=$libdir "$out/custom_model" "$out/custom" "$out/export" examples/corpus/sonnets-001-*.txt >"$out/steps"
    grep -q '^step 60/60  loss ' "$out/steps"
    test -s "$out/export/model.safetensors"
    LD_LIBRARY_PATH=$libdir "$out/cmake/custom_model" "$out/custom" "$out/again" examples/corpus/sonnets-001-*.txt >"$out/steps"
    if grep '^step' "$out/steps"; then exit 1; fi
    # A loop of the program's own.
    LD_LIBRARY_PATH=$libdir "$out/own_loop" configs/llama-tiny.json examples/corpus/sonnets-001-035.txt "$out/own" 5 >"$out/steps"
    grep -q '^step 5  loss ' "$out/steps"
    test -z "$(LD_LIBRARY_PATH=$libdir "$out/cmake/own_loop" configs/llama-tiny.json examples/corpus/sonnets-001-035.txt "$out/own" 5)"
}

# What a .deb says of itself, and its files in a folder in place of the system's root.
check_deb() {
    local field
    dpkg-deb -I "$1" >"$work/deb"
    for field in 'Package: mics' 'Version: 0' 'Maintainer: The mics authors' 'Section: science' \
        'Depends: .*libc6.*libdnnl' 'Description: Trains transformers'; do
        grep -q "^ $field" "$work/deb" || { echo "the .deb lacks $field"; cat "$work/deb"; exit 1; }
    done
    dpkg-deb -c "$1" | grep ' \./usr/share/man/man1/mics\.1$' >/dev/null
    dpkg-deb -x "$1" "$work/root"
    check_program "$work/root/usr" "$(libdir_of "$work/root/usr")"
}

what="C, C++, static, pkg-config and CMake package work, and the examples train"
for prefix in "$work/installed" "$work/unpacked"; do
    libdir=$(libdir_of "$prefix")
    check_program "$prefix" "$libdir"
    check_library "$prefix" "$libdir"
done
if [ -e "$work/mics.deb" ]; then
    check_deb "$work/mics.deb"
    what+="; the .deb too"
else
    what+="; no .deb, dpkg-shlibdeps is missing"
fi
echo "install check: $what"
