#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Whether kernels move memory in the widths that they claim. nvcc may take packs of 16 bytes apart,
# which no test notices: the numbers stay right, and the kernel is slow. The machine code tells.
#
#   tools/check_sass.sh PLUGIN.so    (or a .cubin)
#   tools/check_sass.sh --list FILE PLUGIN.so
#
# The list (check_sass.list) says for each kernel how many loads and stores of each width its code
# has to have, and how many narrow stores it may. Ends with 0 when all kernels keep to it; 1 and a
# line for each that does not, or that the plugin lacks; 2 for wrong usage. Without cuobjdump, or
# without nvdisasm, which it calls, there is one line and 0. Both are looked for in PATH and in
# $CUDA_HOME/bin (/usr/local/cuda/bin).
set -eu
here=$(dirname "$0")
list=$here/check_sass.list
if [ "${1-}" = --list ] && [ $# -ge 2 ]; then
    list=$2
    shift 2
fi
if [ $# -ne 1 ]; then
    sed -n '7,8s/^# *//p' "$0" >&2
    exit 2
fi
plugin=$1
for file in "$plugin" "$list"; do
    [ -r "$file" ] || { echo "check_sass: $file cannot be read" >&2; exit 2; }
done
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
for tool in cuobjdump nvdisasm c++filt; do
    command -v "$tool" >/dev/null || { echo "check_sass: no $tool here, so widths are not checked"; exit 0; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuobjdump --dump-sass "$plugin" >"$work/sass" 2>"$work/errors" || { cat "$work/errors" >&2; exit 1; }
c++filt <"$work/sass" | awk -v list="$list" -f "$here/check_sass.awk"
