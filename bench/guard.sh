#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# What comparing replicas costs at its default, beside steps of GPT-2 124M on this machine: data
# parallel, mics(2), and zero1, whose comparison begins with a parameter sync. Some minutes, 6 GiB.
#   sh bench/guard.sh [BUILD [STEPS]]
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$root/build}" && pwd)
steps=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat "$root"/examples/corpus/sonnets-*.txt >text.txt
for layout in "2 1 1 1" "4 2 2 2" "2 1 1 2"; do
    # shellcheck disable=SC2086
    "$build/bench/guard" "$root/configs/gpt2.json" text.txt $layout "$steps"
    rm -rf out
done
