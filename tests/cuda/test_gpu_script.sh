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
has "left out golden: 0 s are left" "$work/late/report.txt"

# ---- PyTorch that cannot compile: rows without ----
cat >"$work/python" <<'SCRIPT'
#!/bin/sh
case "$*" in
*--no-compile*) echo '{"tokens_per_s": 100.0, "step_ms": 2.5, "mfu": 0.125, "memory_peak_bytes": 2147483648}' ;;
*torch_gpt2.py*) echo "there is no C compiler" >&2; exit 1 ;;
esac
SCRIPT
chmod +x "$work/python"
EMULATED='' MICS_CUDA_PLUGIN=$build/libmics_cuda_emulated.so PYTHON=$work/python call 0 torch torch
has "left out PyTorch, gpt2-1.5b at 1024 x 8, fp32 parameters, compiled: there is no C compiler"
has "torch eager, bf16       100.0       2.5          -         -   0.125     2.0"

# ---- an archive, as a bare machine gets it ----
tree=$work/stage/mics-gpu
mkdir -p "$tree/bin" "$work/bare"
cp "$build/mics" "$build/libmics_cuda_emulated.so" "$(find "$build" -name test_cuda_golden -type f)" "$tree/bin/"
(cd "$(dirname "$script")/../.." && cp --parents bench/gpu/gpt2-124m.json bench/gpu/run.sh "$tree/")
mv "$tree/bench/gpu/run.sh" "$tree/"
echo a-version >"$tree/PACKED"
archive() {
    rm -f "$work/bare"/*
    cp "$tree/run.sh" "$work/bare/"
    tar -C "$work/stage" -cJf "$work/bare/mics-gpu.tar.xz" mics-gpu
}
archive
script=$work/bare/run.sh
TMPDIR=$work/none call 0 packed golden
has "run.sh golden: mics a-version" "$work/packed/report.txt"
has "passed   test_cuda_golden" "$work/packed/report.txt"
[ -s "$work/packed/logs.tar.xz" ] || fail "an archive's call keeps no logs"

# A test that finds no GPU has failed where `mics doctor` found one; one that skips all its cases is skipped.
fake() { # NAME: a program of the archive, by what is read
    cat >"$tree/bin/$1" && chmod +x "$tree/bin/$1"
}
printf '#!/bin/sh\necho "no GPU: made up"\nexit 77\n' | fake test_device_cuda
printf '#!/bin/sh\necho "skipped 3 of 3 cases"\nexit 77\n' | fake test_cuda_lm_head
archive
call 1 made_up tests
has "FAILED   test_device_cuda: no GPU: made up" "$work/made_up/report.txt"
has "skipped  test_cuda_lm_head: skipped 3 of 3 cases" "$work/made_up/report.txt"

# A GPU that is lost in the middle: the report says it too.
printf '#!/bin/sh\ntouch "%s/lost"\n' "$work" | fake test_cuda_golden
mv "$tree/bin/mics" "$tree/bin/real"
fake mics <<SCRIPT
#!/bin/sh
[ ! -e "$work/lost" ] || { echo '{"gpu": {"usable": false, "why_not": "it is lost", "plugin": null}}'; exit 0; }
exec "\${0%/*}/real" "\$@"
SCRIPT
archive
call 77 lossy golden tests
has "passed   test_cuda_golden" "$work/lossy/report.txt"
has "no usable GPU: it is lost" "$work/lossy/report.txt"
exit 0
