#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_gpu_script.sh BUILD: bench/gpu/run.sh on the emulated GPU, all parts in tiny sizes; what it leaves, and what it says
# where no GPU is usable, where a check fails, and where time is over. A rented GPU must not be the first to run it.
set -uo pipefail
build=$1
script=$(cd "$(dirname "$0")/../../bench/gpu" && pwd)/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EMULATED=1 BUILD=$build
unset MICS_CUDA_PLUGIN ARCHIVE MINUTES

fail() {
    echo "FAILED: $*" >&2
    tail -n 40 "$work/said" >&2
    exit 1
}

# Everything that a call prints goes to `said`.
call() { # STATUS OUT ARGUMENT...
    local expected=$1 out=$2 status
    shift 2
    OUT=$work/$out bash "$script" "$@" >"$work/said" 2>&1 </dev/null
    status=$?
    [ $status = "$expected" ] || fail "run.sh $*: status $status, expected $expected"
}

has() { # TEXT [FILE]
    grep -qF -- "$1" "${2:-$work/said}" || fail "lacks: $1"
}

line_of() { # TEXT FILE: the number of the first line with it
    grep -nF -m 1 -- "$1" "$2" | cut -d: -f1
}

# ---- no GPU ----
for part in 1 2 3; do
    MICS_CUDA_PLUGIN=none call 77 without $part
    [ "$(wc -l <"$work/said")" = 1 ] || fail "part $part without a GPU says more than one line"
    has 'no usable GPU: MICS_CUDA_PLUGIN is "none"'
    [ -z "$(ls -A "$work/without")" ] || fail "part $part without a GPU leaves something"
done

# ---- usage ----
call 2 usage
call 2 usage 4
has "no phase 4; there are tests"
ARCHIVE=$work/none.tar.xz call 2 usage 1
has "no archive at"

# ---- all parts ----
report=$work/out/report.txt
call 0 out 1
[ "$(ls "$work/out")" = "$(printf 'logs.tar.xz\nreport.txt')" ] || fail "part 1 leaves $(ls "$work/out")"
for text in "passed   test_device_cuda" "passed   test_cuda_golden" "losses of gpu-bf16 within" "layernorm_forward" \
    "mics, plain" "losses of mics-2 within" "failed: 0"; do
    has "$text" "$report"
done
[ "$(line_of "in all 197, 41 % MFU" "$report")" -lt "$(line_of "passed " "$report")" ] || fail "predictions come late"
[ "$(line_of "predicted by mics plan" "$report")" -lt "$(line_of "passed " "$report")" ] || fail "predictions come late"
# A row: what was measured, what was predicted, and the one over the other.
awk '/mics, plain/ { found = $6 > 0 && $7 > 0 && $8 != "-" } END { exit !found }' "$report" || fail "a row lacks its prediction"
call 0 out 2 3
has "mics, graphs" "$report"
has "left out PyTorch" "$report"
[ "$(grep -c "predicted by mics plan" "$report")" = 1 ] || fail "predictions stand in the report twice"
[ "$(grep -c "^== run.sh" "$report")" = 2 ] || fail "the report does not go on"
tar -tJf "$work/out/logs.tar.xz" >"$work/said"
has logs/test_device_cuda.log
has logs/gpt2-124m-8-1-graphs.jsonl

# ---- failures and limits ----
MICS_EMULATED_FAIL=20 call 1 failing golden
has "FAILED   test_cuda_golden" "$work/failing/report.txt"
has "failed: 1" "$work/failing/report.txt"
[ -s "$work/failing/logs.tar.xz" ] || fail "a call that fails keeps no logs"
MINUTES=0 call 0 late golden large
has "left out test_cuda_golden: 0 s are left" "$work/late/report.txt"
exit 0
