#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/moe.sh [BUILD [OPTION...]]     a mixture of 8 experts, 2 a token, against the dense model of its active size
#
# configs/llama-120m.json has an MLP of 2048; bench/mixtral-300m.json has 8 experts of 1024, of which a token takes two. Both
# train one rank in turn, 4 x 256 tokens a step with AdamW over all parameters; the mixture has 2.4 times as many. Medians of
# the rounds' ratios. The two take some 8 GB. OPTIONs go to train_speed: --rounds 9, --threads 1, --profile, --micro-steps 4.
set -eu
build=$(realpath "${1:-build}")
shift || true
cd "$(dirname "$0")/.."
exec "$build/bench/train_speed" --config configs/llama-120m.json --against bench/mixtral-300m.json --batch 4 --length 256 \
    --micro-steps 1 "$@"
