#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` runs after the build: trains a small GPT-2 on Shakespeare's Sonnets with 4 ranks
# as 2 nodes x 2, shards of 2, and says what to try next. BUILD names the build folder.
set -euo pipefail
cd "$(dirname "$0")/.."
mics=${BUILD:-build}/mics

if [ ! -x "$mics" ]; then
    echo "tools/demo.sh: no $mics; run make first" >&2
    exit 2
fi

echo "\$ $mics train examples/demo.json --ranks 4 --nodes 2"
"$mics" train examples/demo.json --ranks 4 --nodes 2
cat <<TEXT

next:
  $mics generate runs/demo --prompt "Shall I compare "
  $mics eval runs/demo --data examples/corpus/validation-141-154.txt
  $mics explain examples/demo.json --ranks 4 --nodes 2
  $mics train examples/demo.json --ranks 4 --nodes 2 --steps 1600     (goes on from here)
  mpirun -n 4 $mics train examples/demo.json --nodes 2 --out runs/demo-mpi    (the same losses)
Your own text: "train" in examples/demo.json. To start over: rm -r runs/demo
TEXT
