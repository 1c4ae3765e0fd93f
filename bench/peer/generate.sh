#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# Text generation by mics (bench/generate_speed) beside transformers and PyTorch (torch_generate.py), on the CPU, in turns:
# tokens/s of each, and the median of the rounds' ratios, in fp32 and bf16.
#
# usage: generate.sh GENERATE_SPEED [CONFIG.json]      PYTHON (with torch, transformers), ROUNDS, PROMPT, TOKENS, SAMPLES
#        and THREADS (a power of 2) are read from the environment.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
speed=$(realpath "${1:?usage: generate.sh GENERATE_SPEED [CONFIG.json]}")
config=$(realpath "${2:-$here/../../configs/gpt2.json}")
python=${PYTHON:-python3} rounds=${ROUNDS:-3} threads=${THREADS:-2}
shape="--prompt ${PROMPT:-64} --tokens ${TOKENS:-128} --samples ${SAMPLES:-1} --threads $threads"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

grep -m 1 'model name' /proc/cpuinfo
echo "$config, $shape; torch $("$python" -c 'import torch, transformers
print(torch.__version__, "transformers", transformers.__version__)')"
for round in $(seq "$rounds"); do
    "$speed" "$config" $shape --rounds 1 >"$work/mics"
    for dtype in fp32 bf16; do
        # threads, dtype, GB/s, tokens/s, share, %, prompt tokens/s
        ours=$(awk -v t="$threads" -v d=$dtype '$1 == t && $2 == d { print $4, $7, $3, $5 }' "$work/mics")
        theirs=$("$python" "$here/torch_generate.py" "$config" $shape --dtype $dtype 2>"$work/torch.log") ||
            { cat "$work/torch.log" >&2; exit 1; }
        echo "$ours $theirs" | tee -a "$work/$dtype" | awk -v r="$round" -v d=$dtype '{
            printf "round %d, %s: mics %.1f tokens/s (%.0f %% of %.1f GB/s), torch %.1f tokens/s (%.0f %%), ratio %.2f; " \
                   "prompt: %.0f and %.0f tokens/s\n", r, d, $1, $4, $3, $5, $4 * $5 / $1, $1 / $5, $2, $6 }'
    done
done
for dtype in fp32 bf16; do
    awk '{ print $1 / $5 }' "$work/$dtype" | sort -n | awk -v d=$dtype '{ v[NR] = $1 } END {
        printf "%s: median ratio %.2f\n", d, NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
done
