#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/published.sh [--rows] [--table] [--set PATH=VALUE ...]     plans beside published throughputs
#
# Plans each row of throughput.jsonl and throughput2.jsonl at its published sharding and batch, as its software runs it,
# and prints predicted over measured time: by kind (chip, precision, parallelism) and by software, each source with
# constants that were fitted to the other sources, one chip over another, and the order of pairs.
# --rows prints each row; --table the rows of src/plan/offers/kinds.inc; --set changes a figure of every cluster, as in
# accelerator.memory_kept=1. Takes seconds.
#
#   BUILD=build      a build folder made with -DMICS_BENCH=ON
#   ROWS="FILE ..."  rows of your own, in the form of either file; sources.jsonl says what is known of the software
#                    behind those that do not say it
#   CONFIGS=FOLDER   model files that rows name
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
rows=${ROWS:-$here/throughput.jsonl $here/throughput2.jsonl}
# Several files: split where the spaces are.
# shellcheck disable=SC2086
exec "${BUILD:-$here/../../build}/bench/published" "${CONFIGS:-$here/configs}" "$here/sources.jsonl" "$@" $rows
