#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/published.sh [--rows] [--set PATH=VALUE ...]     plans beside published throughputs
#
# Plans each row of throughput.jsonl at its published sharding and batch, and prints predicted over measured time:
# by group, with constants that were fitted to the other groups, with links that are slower between many nodes, of one
# chip over another, and the order of pairs.
# --rows prints each row; --set changes a figure of every cluster, as in accelerator.memory_kept=1. Takes seconds.
#
#   BUILD=build    a build folder made with -DMICS_BENCH=ON
#   ROWS=FILE      rows of your own, in the form of throughput.jsonl; sources.jsonl says what is known of
#                  the software behind them
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
exec "${BUILD:-$here/../../build}/bench/published" "${ROWS:-$here/throughput.jsonl}" "$here/sources.jsonl" "$@"
