#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# test_gpu_script.sh BUILD [whole]: bench/gpu/run.sh on the emulated GPU: what it leaves, and what it says where no GPU is
# usable, where a check fails, and where time is over; `whole`: instead both calls in tiny sizes, which run most of the tests of
# this folder once more. A lent GPU must not be the first to run it.
set -uo pipefail
build=$1 extent=${2:-}
tools=$(cd "$(dirname "$0")/../../bench/gpu" && pwd)
script=$tools/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EMULATED=1 BUILD=$build
unset MICS_CUDA_PLUGIN ARCHIVE MINUTES NCCL_LIBRARY
# Of time there is enough, but where a test is about it.
export SECONDS_MAX=9000

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

before() { # TEXT TEXT FILE: the first lines with them stand in this order
    local first second
    first=$(line_of "$1" "$3") second=$(line_of "$2" "$3")
    [ "${first:-0}" -gt 0 ] || fail "lacks: $1"
    [ "$first" -lt "${second:-0}" ] || fail "\"$1\" does not come before \"$2\""
}

# ---- both calls ----
both_calls() {
    report=$work/out/report.txt
    call 0 out 1
    [ "$(ls -A "$work/out")" = "$(printf 'logs.tar.xz\nreport.txt')" ] || fail "call 1 leaves $(ls -A "$work/out")"
    for text in "passed   test_cuda_nccl_smoke" "passed   test_cuda_golden" "layernorm_forward" "mics, tuned" "mics, graphs" \
        "failed: 0"; do
        has "$text" "$report"
    done
    before "in all 197, 41 % MFU" "passed " "$report"
    before "a call of 9000 s, of which" "predicted by mics plan" "$report"
    before "predicted by mics plan" "passed   test_cuda_golden" "$report"
    before "passed   test_cuda_golden" "mics, plain" "$report"
    before "mics, plain" "layernorm_forward" "$report"
    before "layernorm_forward" "passed   test_device_cuda" "$report"
    before "passed   test_device_cuda" "passed   test_cuda_lm_head" "$report"
    # A row: what was measured, what was predicted, and the one over the other.
    awk '/mics, plain/ { found = $6 > 0 && $7 > 0 && $8 != "-" } END { exit !found }' "$report" || fail "a row lacks its prediction"
    # The report goes on, and where the folder was emptied, call 2 has a whole one.
    call 0 out 2
    [ "$(grep -c "^== run.sh" "$report")" = 2 ] || fail "the report does not go on"
    for text in "losses of gpu-bf16 within" "losses of mics-2 within" "losses of hpz-2 within" "left out PyTorch" \
        "collectives go through host memory: NCCL 2.28.9 would have to be 2.30 or newer" "mics, graphs"; do
        has "$text" "$report"
    done
    awk '$5 == "mics" && $1 == 4096 { found = $6 > 0 && $7 > 0 && $9 == 8.9 } END { exit !found }' "$report" ||
        fail "attention lacks its times or its prediction"
    tar -tJf "$work/out/logs.tar.xz" >"$work/said"
    has logs/test_device_cuda.log
    has logs/gpt2-124m-8-1-graphs.jsonl
    call 0 emptied attention
    before "predicted by mics plan" "both_ms" "$work/emptied/report.txt"
}
if [ "$extent" = whole ]; then
    both_calls
    exit 0
fi

# ---- no GPU ----
for part in 1 2; do
    MICS_CUDA_PLUGIN=none call 77 without $part
    [ "$(wc -l <"$work/said")" = 1 ] || fail "call $part without a GPU says more than one line"
    has 'no usable GPU: MICS_CUDA_PLUGIN is "none"'
    [ -z "$(ls -A "$work/without")" ] || fail "call $part without a GPU leaves something"
done

# ---- usage ----
call 2 usage
for part in 3 predictions; do
    call 2 usage $part
    has "no phase $part; there are golden"
done
ARCHIVE=$work/none.tar.xz call 2 usage 1
has "no archive at"
for seconds in "" 0 5.5 330s 330,0 " 330" -330 +330 0330 0x14a 1e2 100000 many; do
    SECONDS_MAX=$seconds call 2 usage 1
    has "SECONDS_MAX is \"$seconds\": a whole number from 1 to 99999 works, such as 330"
done
MINUTES=9 call 2 usage 1
has "MINUTES is not read: SECONDS_MAX=330"
[ ! -e "$work/usage" ] || fail "wrong usage leaves something"

# ---- failures and limits ----
MICS_EMULATED_FAIL=20 call 1 failing golden
has "FAILED   test_cuda_golden" "$work/failing/report.txt"
has "failed: 1" "$work/failing/report.txt"
[ -s "$work/failing/logs.tar.xz" ] || fail "a call that fails keeps no logs"
SECONDS_MAX=12 call 0 late golden large
has "left out golden: 0 s are left for all" "$work/late/report.txt"
MICS_CUDA_PLUGIN=$build/libmics_cuda_emulated.so \
    "$(find "$build" -name op_speed -type f -perm -u+x)" --tiny --only gelu_forward,none >"$work/said" 2>&1 &&
    fail "op_speed --only takes what it does not know"
has 'nothing is called "none"'

# ---- PyTorch that cannot compile: rows without ----
cat >"$work/python" <<'SCRIPT'
#!/bin/sh
case "$*" in
*--no-compile*) echo '{"tokens_per_s": 100.0, "step_ms": 2.5, "mfu": 0.125, "memory_peak_bytes": 2147483648}' ;;
*torch_gpt2.py*) echo "there is no C compiler" >&2; exit 1 ;;
esac
SCRIPT
chmod +x "$work/python"
as_real() { # a call that takes the emulated GPU for a real one
    EMULATED='' MICS_CUDA_PLUGIN=$build/libmics_cuda_emulated.so PYTHON=$work/python call "$@"
}
as_real 0 torch torch
has "left out PyTorch, gpt2-1.5b at 1024 x 8, fp32 parameters, compiled: there is no C compiler"
has "torch eager, bf16       100.0       2.5          -         -   0.125     2.0"

# ---- an archive, as a bare machine gets it ----
tree=$work/stage/mics-gpu
mkdir -p "$tree/bin" "$work/bare"
cp "$build/mics" "$build/libmics_cuda_emulated.so" "$(find "$build" -name test_cuda_golden -type f)" "$tree/bin/"
(cd "$(dirname "$script")/../.." && cp --parents bench/gpu/*.json bench/gpu/*.sh "$tree/")
mv "$tree/bench/gpu/run.sh" "$tree/"
echo a-version >"$tree/PACKED"
archive() {
    rm -f "$work/bare"/*
    cp "$tree/run.sh" "$work/bare/"
    XZ_OPT=-0 tar -C "$work/stage" -cJf "$work/bare/mics-gpu.tar.xz" mics-gpu
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
# shellcheck disable=SC2016
printf '#!/bin/sh\necho "no GPU: made up, by $(cat "${0%%/*}/../lib/libnccl.so.2")"\nexit 77\n' | fake test_device_cuda
printf '#!/bin/sh\necho "skipped 3 of 3 cases"\nexit 77\n' | fake test_cuda_lm_head
archive
# NCCL comes in a second archive.
mkdir -p "$work/second/mics-gpu/lib"
echo "an NCCL" >"$work/second/mics-gpu/lib/libnccl.so.2"
tar -C "$work/second" -cJf "$work/bare/mics-gpu-nccl.tar.xz" mics-gpu
call 1 made_up tests
has "FAILED   test_device_cuda: no GPU: made up, by an NCCL" "$work/made_up/report.txt"
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

# CUDA's tools and PyTorch's attention, by stand-ins that say what real ones say.
mkdir "$work/tools"
cat >"$work/tools/compute-sanitizer" <<'SCRIPT'
#!/bin/sh
case "$*" in *--only*experts*) echo "========= Error: Race reported between two lines"; exit 9 ;; esac
SCRIPT
printf '#!/bin/sh\necho "Duration us 12.5 of $*"\n' >"$work/tools/ncu"
chmod +x "$work/tools"/*
fake op_speed <<'SCRIPT'
#!/bin/sh
echo '{"op": "attention_forward", "us": 400.00, "least_us": 1.00}'
echo '{"op": "attention_backward", "us": 600.00, "least_us": 1.00}'
SCRIPT
cat >"$work/python" <<'SCRIPT'
#!/bin/sh
case "$*" in
*torch_attention.py" 1600,25,1024,8 4096,32,8192,1")
    echo '{"shape": "1600,25,1024,8", "backend": "cudnn", "forward_us": 100.0, "backward_us": 210.0}'
    echo "it is too large" >&2
    ;;
esac
SCRIPT
fake mics <<'SCRIPT'
#!/bin/sh
[ "$1" != doctor ] || echo '{"gpu": {"usable": true, "why_not": "", "plugin": null}}'
SCRIPT
archive
PATH=$work/tools:$PATH as_real 1 tools attention profile sanitizer
report=$work/tools_report
tr -s ' ' <"$work/tools/report.txt" >"$report"
has "1600 25 1024 8 mics 400.0 600.0 1.000 0.65 1.538" "$report"
has "1600 25 1024 8 torch, cudnn 100.0 210.0 0.310 0.31 1.000" "$report"
has "left out PyTorch's attention at 4096 channels, length 8192: it is too large" "$report"
has "profile of adamw_op, 1600 channels, 8192 rows:" "$report"
has "--kernel-name regex:adamw_op" "$report"
has "--only adamw_update" "$report"
has "clean racecheck of attention_forward,attention_backward" "$report"
has "FAILED racecheck of experts_in_forward,experts_in_backward,experts_out_forward,experts_out_backward: ========= Error: Race" \
    "$report"

# Programs that hang: each is ended when its time is over, and the phases after it have theirs.
printf '#!/bin/sh\ntrap "" TERM\nsleep 100000\n' | tee "$tree/bin/test_device_cuda" | fake test_cuda_nccl_smoke
printf '#!/bin/sh\nexit 0\n' | tee "$tree/bin/gpu_random_tokens" | fake op_speed
chmod +x "$tree"/bin/*
fake mics <<'SCRIPT'
#!/bin/sh
[ "$1" = doctor ] || exec sleep 100000
echo '{"gpu": {"usable": true, "why_not": "", "plugin": null}}'
SCRIPT
archive
SECONDS_MAX=90 call 1 hanging large tests kernels
report=$work/hanging/report.txt
has "FAILED   steps of gpt2-1.5b at 8 x 1, plain: stopped after 0 steps: its time was over" "$report"
has "FAILED   test_cuda_nccl_smoke: killed when its time was over" "$report"
has "kernels, --tiny: each beside its floor" "$report"
sed -n 's/^-- .* to \([0-9]*\) at most$/\1/p' "$report" >"$work/said"
awk '$1 > 90 - 12 { late = 1 } END { exit late || NR != 4 }' "$work/said" || fail "a phase may go on beyond the call's end"

# ---- packing ----
# shellcheck disable=SC2016
printf 'die() { echo "$2"; exit "$1"; }\n. "$1"\ncompress "$2" mics-gpu/lib "$3" "$4"\n' >"$work/compress"
bash "$work/compress" "$tools/pack.sh" "$work/second" "$work/small.tar.xz" 100000000 >"$work/said" || fail "nothing is packed"
[ "$(tar -tJf "$work/small.tar.xz" | head -n 1)" = mics-gpu/lib/ ] || fail "what comes first does not"
bash "$work/compress" "$tools/pack.sh" "$work/second" "$work/large.tar.xz" 100 >"$work/said" && fail "an archive is too large"
has "large.tar.xz would have more than 0 KiB"
[ ! -e "$work/large.tar.xz" ] || fail "an archive that is too large stays"
NCCL_LIBRARY=$work/none script=$tools/run.sh call 2 none pack
has "no file at NCCL_LIBRARY=$work/none"
if ! command -v python3 >"$work/said" || ! command -v objcopy >"$work/said"; then
    echo "without one_chip.py: python3 or objcopy is missing"
    exit 0
fi

# Sections as CUDA's compiler leaves them: two containers, one of them with code for chips 80 and 90.
python3 - "$work" <<'SCRIPT'
import struct, sys
def container(*elements):
    body = b"".join(struct.pack("<HHIQ12xI32x", 2, 1, 64, len(text), chip) + text for chip, text in elements)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
for name, data in (("linked", container((80, b"eighty!!"), (90, b"ninety!!")) + bytes(8) + container((80, b"others!!"))),
                   ("parts", container((90, b"linked from"))), ("broken", container((90, b"cut"))[:-1])):
    open(f"{sys.argv[1]}/{name}", "wb").write(data)
SCRIPT
library() { # SECTION FILE...
    local file options=()
    for file in "$@"; do options+=(--add-section "${file%%:*}=$work/${file#*:}"); done
    objcopy "${options[@]}" "$build/libmics_cuda_emulated.so" "$work/library"
}
library .nv_fatbin:linked __nv_relfatbin:parts
python3 "$tools/one_chip.py" "$work/library" 90 "$work/copy" >"$work/said" || fail "one_chip.py fails"
has "1 modules of 0.0 MiB for compute capability 9.0"
[ "$(stat -c %s "$work/library")" = "$(stat -c %s "$work/copy")" ] || fail "one_chip.py moves bytes"
has "ninety!!" "$work/copy"
for gone in "eighty!!" "others!!" "linked from"; do ! grep -qF "$gone" "$work/copy" || fail "one_chip.py keeps $gone"; done
# All other bytes are the same.
[ "$(cmp -l "$work/library" "$work/copy" | wc -l)" = $((8 + 8 + 11)) ] || fail "one_chip.py changes other bytes"
python3 "$tools/one_chip.py" "$work/library" 100 "$work/other" >"$work/said" 2>&1 && fail "a library without the chip is taken"
has "it has no code for compute capability 10.0"
library .nv_fatbin:broken
python3 "$tools/one_chip.py" "$work/library" 90 "$work/other" >"$work/said" 2>&1 && fail "a broken section is taken"
has "there is no container at"
[ ! -e "$work/other" ] || fail "a library that is refused is copied"
exit 0
