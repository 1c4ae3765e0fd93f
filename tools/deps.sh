#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Installs what building needs and this machine lacks. Says nothing when nothing is missing.
#
#   tools/deps.sh [TOOL...]     also installs these tools (package name = command name)
#
# What counts is what can be found, not who installed it: libraries of other systems, other prefixes
# (CMAKE_PREFIX_PATH, PKG_CONFIG_PATH) and another MPI are used as they are. Where apt-get cannot be
# used it prints what is missing, by its Debian and its own name, and exits with status 1.
set -euo pipefail

readonly CMAKE_MINIMUM=3.22

have() {
    command -v "$1" >/dev/null 2>&1
}

have_cmake() {
    local version
    have cmake || return 1
    version=$(cmake --version | sed -n '1s/^[^0-9]*//p')
    [ "$(printf '%s\n' "$CMAKE_MINIMUM" "$version" | sort -V | head -n 1)" = "$CMAKE_MINIMUM" ]
}

have_compiler() {
    have "$1" && echo '#include <stdio.h>' | "$1" -E -x "$2" - >/dev/null 2>&1
}

# oneDNN has no pkg-config file everywhere, so this looks where cmake/Finddnnl.cmake does.
have_dnnl() {
    local prefix IFS=':;'
    for prefix in ${CMAKE_PREFIX_PATH:-} ${dnnl_ROOT:-} ${DNNLROOT:-} /usr /usr/local /opt/homebrew; do
        [ ! -e "$prefix/include/dnnl.h" ] || return 0
    done
    return 1
}

have_library() {
    have pkg-config && pkg-config --exists "$1"
}

# Fills `packages` (Debian and Ubuntu) and `names` (everybody else) with what is missing.
find_missing() {
    packages=() names=()
    miss() { packages+=($1); names+=("$2"); }
    have_cmake || miss cmake "CMake >= $CMAKE_MINIMUM"
    have make || miss make "make"
    have_compiler "${CC:-cc}" c || miss "gcc libc6-dev" "a C11 compiler (gcc or clang)"
    have_compiler "${CXX:-c++}" c++ || miss "g++" "a C++17 compiler (the tests compile the headers with it)"
    have pkg-config || miss pkg-config "pkg-config"
    have_dnnl || miss libdnnl-dev "oneDNN (https://github.com/uxlfoundation/oneDNN)"
    have_library "jansson >= 2.13" || miss libjansson-dev "Jansson >= 2.13"
    have_library "oniguruma >= 6.9.7" || miss libonig-dev "Oniguruma >= 6.9.7"
    have_library libutf8proc || miss libutf8proc-dev "utf8proc"
    have_library libxxhash || miss libxxhash-dev "xxHash"
    have_library snappy || miss libsnappy-dev "Snappy"
    have_library "yaml-0.1 >= 0.2.1" || miss libyaml-dev "LibYAML >= 0.2.1"
    have_library zlib || miss zlib1g-dev "zlib"
    have_library "libzstd >= 1.4" || miss libzstd-dev "Zstandard >= 1.4"
    have_library cmocka || miss libcmocka-dev "cmocka"
    have mpicc && have mpirun || miss "libopenmpi-dev openmpi-bin" "MPI (Open MPI or MPICH)"
    local tool
    for tool in "$@"; do
        have "$tool" || miss "$tool" "$tool"
    done
}

give_up() {
    {
        echo "deps: $1. Missing:"
        printf '  %s\n' "${names[@]}"
        echo "On Debian 12, Ubuntu 22.04 or newer: apt-get install ${packages[*]}"
    } >&2
    exit 1
}

# Lists that are absent or older than the archive make the first try fail; then they are renewed.
apt_install() {
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -q -y)
    [ "$(id -u)" -eq 0 ] || apt=(sudo "${apt[@]}")
    apt-cache show --no-all-versions "${packages[@]}" >/dev/null 2>&1 &&
        "${apt[@]}" install --no-install-recommends "${packages[@]}" </dev/null && return
    "${apt[@]}" update </dev/null &&
        "${apt[@]}" install --no-install-recommends "${packages[@]}" </dev/null
}

find_missing "$@"
[ ${#packages[@]} -gt 0 ] || exit 0

have apt-get || give_up "no apt-get here, please install by hand"
if [ "$(id -u)" -ne 0 ]; then
    have sudo || give_up "not root, and no sudo"
    [ -t 0 ] || sudo -n true 2>/dev/null || give_up "not root, and sudo asks for a password"
fi

echo "deps: installing ${packages[*]}"
apt_install || give_up "apt-get failed"
wanted=("${packages[@]}")
hash -r
find_missing "$@"
[ ${#packages[@]} -eq 0 ] || give_up "apt-get installed ${wanted[*]}, but not all is found"
