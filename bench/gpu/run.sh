#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in two calls of 5 minutes, for a GPU that is lent by the minute: an archive goes there, a
# report and its logs come back. There it needs neither a network nor a compiler. Python is needed by the rows of PyTorch,
# and where the libraries of CUDA are in its wheels.
#
#   bench/gpu/run.sh pack [FILE]        here: builds what it packs, and makes the archive (BUILD/mics-gpu.tar.xz)
#   run.sh 1 | 2 | PHASE...             there, beside the archive: a call, or the phases named
#
#   1   golden large kernels tests
#   2   shardings losses shapes attention profile sanitizer
#
#   golden        logits beside another implementation's         shardings     all, at 2 and 4 ranks on the one GPU
#   large         GPT-2 1.5B, whole steps, batch 8 first         losses        short curves beside the CPU's
#   kernels       each beside its floor, at 1600 channels        shapes        whole steps of GPT-2 124M, and of a stack of
#   tests         tests/cuda on the chip, skips counted                        Llama-3-8B's shape
#   kernels_more  kernels at 768 and 4096                        attention     beside PyTorch's
#   torch         whole steps in PyTorch                         profile       ncu over one shape of a kernel
#                                                                sanitizer     compute-sanitizer: races, then more
#
# The most telling phases come first. Before the first figure stand predictions, and each phase's seconds. A phase that has
# used them is ended; what it does not use goes to those after it. The report names what no time was left for. Every phase
# asks `mics doctor` first.
#
#   ARCHIVE=          what `pack` made; by default mics-gpu.tar.xz beside this script. Without one it builds its checkout
#   OUT=runs/gpu      gets report.txt and logs.tar.xz, stored after each phase; nothing else is left. A report that lies
#                     there goes on; a call that finds none begins a whole one
#   SECONDS_MAX=330   a call ends by itself within so many seconds, unpacking and logs included
#   PYTHON=python3    has torch, for PyTorch's rows; its nvidia/*/lib folders, if any, are where cuBLAS and NCCL are looked
#                     for first
#   BUILD=            build-pack for `pack`, else build-gpu
#   NCCL_LIBRARY=     of `pack`: a libnccl.so.2, whose code for sm_90 makes a second archive (mics-gpu-nccl.tar.xz beside the
#                     first); where both lie beside each other, that NCCL is taken
#   EMULATED=1        tries the script on the emulated GPU of BUILD, in tiny sizes, without ncu, PyTorch and sanitizer
#
# Exit status: 0; 1 when a check failed; 2 for wrong usage; 77 when no GPU is usable, in one line that says why.
set -uo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")
here=$(dirname "$script")
emulated=${EMULATED:-} python=${PYTHON:-python3}
failed=0 skipped_tests=0 skipped_cases=0
readonly GIB=$((1024 * 1024 * 1024))
readonly PACKING_S=12          # kept for the logs at the end
readonly ANSWER_S=20           # for what answers in seconds, unless the driver hangs
readonly FIRST_ANSWER_S=60     # for the first of them, which wakes the driver
readonly LOG_KIB=1024          # of a log in logs.tar.xz; of a longer one its end
readonly benches=(op_speed gpu_random_tokens)
readonly phases=(golden large kernels tests shardings losses shapes attention profile sanitizer kernels_more torch)

die() { # STATUS TEXT
    echo "run.sh: $2" >&2
    exit "$1"
}

absolute() { # PATH
    case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

# The names of the tests in tests/cuda: what all else rests on first, those of the engine last, as they take longest. The
# archive has programs alone.
cuda_tests() {
    local path names=() all=(tests/cuda/test_*cuda*.c) first='^test_(device_cuda|cuda_nccl_smoke)$'
    [ ! -f PACKED ] || all=(bin/test_*)
    for path in "${all[@]}"; do names+=("$(basename "$path" .c)"); done
    printf '%s\n' "${names[@]}" | grep -E "$first"
    printf '%s\n' "${names[@]}" | grep -vE "$first|engine"
    printf '%s\n' "${names[@]}" | grep engine
}

program_in() { # FOLDER NAME
    find "$1" -maxdepth 4 -type f -name "$2" -perm -u+x | head -n 1
}

# ---- the time of a call ----

# Digits alone: bash would take 010 for 8, and 5.5 for an error in the middle of a call.
check_seconds() {
    [ -z "${MINUTES+set}" ] || die 2 "MINUTES is not read: SECONDS_MAX=330 gives a call its seconds"
    [[ ${SECONDS_MAX=330} =~ ^[1-9][0-9]{0,4}$ ]] ||
        die 2 "SECONDS_MAX is \"$SECONDS_MAX\": a whole number from 1 to 99999 works, such as 330, which is the default"
}

# A phase's part of a call. They are seconds where a call has 330: each call's sum is that less PACKING_S.
weight_of() { # PHASE
    case $1 in
    predictions) echo 10 ;;
    golden) echo 20 ;;
    large) echo 110 ;;
    kernels) echo 45 ;;
    tests) echo 133 ;;
    shardings) echo 85 ;;
    losses) echo 37 ;;
    sanitizer) echo 45 ;;
    shapes) echo 75 ;;
    attention) echo 28 ;;
    profile) echo 38 ;;
    kernels_more) echo 60 ;;
    torch) echo 300 ;;
    esac
}

# What the first phase may have of the seconds left: they are divided by weight among it and those after it.
share_of() { # SECONDS PHASE PHASE...
    local left=$1 weight sum=0 phase
    shift
    weight=$(weight_of "$1")
    for phase in "$@"; do sum=$((sum + $(weight_of "$phase"))); done
    echo $((left > 0 ? left * weight / sum : 0))
}

show_shares() { # PHASE...
    local left=$((deadline - SECONDS)) share
    say "a call of $SECONDS_MAX s, of which $SECONDS are over and $PACKING_S kept for logs; each phase has these, and what those before leave"
    while [ $# -gt 0 ]; do
        share=$(share_of $left "$@")
        say "$(printf '  %-12s %4d s' "$1" "$share")"
        left=$((left - share))
        shift
    done
}

# Whether something may begin that takes some SECONDS of the phase's.
time_for() { # SECONDS WHAT
    local left=$((phase_end - SECONDS))
    [ "$left" -ge "$1" ] && return
    say "left out $2: $((left > 0 ? left : 0)) s are left, and it may take $1"
    return 1
}

# Runs a command with a limit, or until the phase's time is over; what it prints goes to NAME.log. What does not end is
# killed at once, with its processes: a `mics train` that is asked to end would save a checkpoint first.
keep() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2 left=$((phase_end - SECONDS))
    shift 2
    [ -z "$emulated" ] || limit=$((limit * 30)) # a GPU's seconds
    [ "$left" -ge "$limit" ] || limit=$left
    [ "$limit" -ge 1 ] || { echo "its phase's time was over" >"$logs/$name.log"; return 124; }
    timeout -s KILL "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
}

# ---- reporting ----

say() {
    echo "$*" | tee -a "$report"
}

# A number rounded; what is none stays as it is.
decimals() { # DIGITS NUMBER
    case $2 in [0-9]*) printf "%.$1f" "$2" ;; *) echo "$2" ;; esac
}

# A over B, or "-" where one of them is no number.
ratio() { # DIGITS A B
    case "$2 $3" in
    [0-9]*" "[0-9]*) awk -v a="$2" -v b="$3" "BEGIN { printf \"%.$1f\", a / b }" ;;
    *) echo - ;;
    esac
}

bad() {
    failed=$((failed + 1))
    say "FAILED   $*"
}

skipped() { # NAME: a test, whose log says why
    skipped_tests=$((skipped_tests + 1))
    say "skipped  $1: $(grep -m 1 '^skipped: ' "$logs/$1.log" || last_line "$1")"
}

last_line() { # NAME: of its log
    tail -n 1 "$logs/$1.log" 2>/dev/null
}

# Ends the call, in one line that a report which has begun gets too.
give_up() { # STATUS TEXT
    [ ! -s "$report" ] || echo "run.sh: $2" >>"$report"
    die "$1" "$2"
}

# Ends the call with 77 where no GPU is usable; with 1 where checks failed before.
ask_doctor() { # PHASE SECONDS
    local json=$logs/doctor-$1.json line
    [ -x "$mics" ] || give_up 1 "no program at $mics"
    timeout -s KILL "$2" "${ours[@]}" "$mics" doctor --json >"$json" 2>"$logs/doctor-$1.err" </dev/null ||
        give_up 1 "mics doctor failed before $1 (status $?): $(tail -n 1 "$logs/doctor-$1.err")"
    grep -q '"usable": true' "$json" && return
    line=$(sed -n 's/.*"why_not": "\(.*\)", "plugin":.*/\1/p' "$json" | sed 's/\\\(.\)/\1/g')
    [ "$failed" = 0 ] || give_up 1 "$failed failed, then there was no usable GPU: $line"
    give_up 77 "no usable GPU: $line"
}

# ---- where it runs ----

# xz may be missing; Python then reads and writes the format.
unpack() { # ARCHIVE FOLDER
    tar -C "$2" -xJf "$1" 2>/dev/null || "$python" -m tarfile -e "$1" "$2"
}

# A new temporary folder that programs may run in, which some systems do not allow below /tmp.
new_folder() {
    local parent folder
    for parent in "${TMPDIR:-/tmp}" /var/tmp "$PWD"; do
        folder=$(mktemp -d "$parent/mics-gpu.XXXXXX" 2>/dev/null) || continue
        if echo '#!/bin/sh' >"$folder/try" && chmod +x "$folder/try" && "$folder/try" 2>/dev/null; then
            rm "$folder/try"
            echo "$folder"
            return
        fi
        rm -rf "$folder"
    done
    return 1
}

# A folder that is gone when this ends. The script of the archive goes on in it.
enter_archive() { # ARCHIVE ARGUMENT...
    local archive=$1 part
    shift
    [ -f "$archive" ] || die 2 "no archive at $archive"
    work=$(new_folder) || die 1 "no programs may run in /tmp, /var/tmp and $PWD; TMPDIR names another folder"
    for part in "$archive" "${archive%.tar.xz}-nccl.tar.xz"; do
        [ -f "$part" ] || continue
        unpack "$part" "$work" || { rm -rf "$work"; die 1 "$part cannot be unpacked"; }
    done
    OUT=$out RUN_WORK=$work RUN_BEGAN_S=$SECONDS exec bash "$work/mics-gpu/run.sh" "$@"
}

library_path() {
    local folders folder
    folders=$("$python" -c '
import glob, sys
print(":".join(f for p in sys.path if p for f in sorted(glob.glob(p + "/nvidia/*/lib"))))' 2>/dev/null)
    for folder in /usr/local/cuda/lib64 /usr/local/cuda-*/lib64; do
        [ ! -d "$folder" ] || folders=$folders:$folder
    done
    [ ! -d "$root/lib" ] || folders=$root/lib:$folders
    echo "$folders:${LD_LIBRARY_PATH:-}"
}

# Logs of earlier calls stay in the archive that this one writes. The last one lies there until the new one is whole: a call
# may be killed meanwhile.
save_logs() {
    local log new=$work/logs.tar.xz
    find "$logs" -type f -size +${LOG_KIB}k | while read -r log; do
        tail -c ${LOG_KIB}K "$log" >"$work/end" && mv "$work/end" "$log"
    done
    if tar -C "$work" -cJf "$new" logs 2>/dev/null || (cd "$work" && "$python" -m tarfile -c "$new" logs); then
        cp "$new" "$out/.logs.new" && mv "$out/.logs.new" "$out/logs.tar.xz" && return
    fi
    echo "run.sh: no logs.tar.xz" >&2
}

finish() {
    [ ! -s "$report" ] || save_logs
    rm -rf "$work"
}

# Sets what everything below uses: deadline, bin, build, work, logs, report, mics, ours.
settle() {
    work=${RUN_WORK:-$(mktemp -d)} logs=$work/logs report=$out/report.txt
    trap finish EXIT
    trap 'exit 1' INT TERM
    SECONDS=${RUN_BEGAN_S:-0} deadline=$((SECONDS_MAX - PACKING_S))
    cd "$root" || exit 1
    mkdir -p "$out" "$logs" || exit 1
    [ ! -s "$out/logs.tar.xz" ] || unpack "$out/logs.tar.xz" "$work"
    if [ -f PACKED ]; then
        bin=$root/bin
    else
        bin=$(absolute "${BUILD:-build-gpu}")
    fi
    build=$bin mics=$bin/mics
    # For our programs only: PyTorch finds its own.
    ours=(env "LD_LIBRARY_PATH=$(library_path)")
    [ -z "$emulated" ] || ours+=("MICS_CUDA_PLUGIN=${MICS_CUDA_PLUGIN:-$bin/libmics_cuda_emulated.so}")
}

# ---- a call ----

names_of() { # ARGUMENT: a call's phases, or the argument
    case $1 in
    1) echo golden large kernels tests ;;
    2) echo shardings losses shapes attention profile sanitizer ;;
    *) echo "$1" ;;
    esac
}

# What the phases read, beside what is in the tree.
write_inputs() {
    # A model that the emulation is not long at.
    sed 's/"n_embd": *[0-9]*/"n_embd": 32/; s/"n_layer": *[0-9]*/"n_layer": 1/; s/"n_head": *[0-9]*/"n_head": 2/
         s/"vocab_size": *[0-9]*/"vocab_size": 256/; s/"n_positions": *[0-9]*/"n_positions": 16/' \
        bench/gpu/gpt2-124m.json >"$work/tiny.json"
    cat >"$work/speed.json" <<'JSON'
{"model": {"config": "bench/gpu/gpt2-124m.json"}, "data": {"train": ["tokens.bin"]},
 "run": {"steps": 1000, "validation_batches": 0, "device": "cuda", "precision": "bf16", "peak_tflops": 989},
 "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0,
 "optimizer": {"params": {"lr": 1e-4, "weight_decay": 0.1}}}
JSON
    accelerator=H100-SXM5-80GB
    ! grep -q H200 "$logs"/doctor-*.json || accelerator=H200-SXM5-141GB
    printf '{"name": "one GPU", "accelerator": "%s", "tiers": {"node": {"fan_out": 1, "gb_per_s": 1}}}\n' \
        $accelerator >"$work/gpu.json"
}

begin_report() { # ARGUMENT...
    local version
    version=$(cat PACKED 2>/dev/null || git describe --always --dirty 2>/dev/null || echo 'of no commit')
    say "== run.sh $*: mics $version, $(date -u +%Y-%m-%dT%H:%M:%SZ), $(nproc) cores${emulated:+, emulated GPU}"
    timeout -s KILL $ANSWER_S "${ours[@]}" "$mics" doctor </dev/null | grep -E '^(GPU|CUDA|NCCL|links)' | tee -a "$report"
    write_inputs
}

run_phases() { # PHASE...
    local phase share left
    show_shares "$@"
    while [ $# -gt 0 ]; do
        phase=$1 left=$((deadline - SECONDS)) share=$(share_of $((deadline - SECONDS)) "$@")
        shift
        if [ "$share" -lt 1 ]; then
            say "left out $phase: $((left > 0 ? left : 0)) s are left for all"
            continue
        fi
        phase_end=$((SECONDS + share))
        # The first phase comes just after it was asked.
        [ "$phase" = predictions ] || ask_doctor "$phase" $((share < ANSWER_S ? share : ANSWER_S))
        say "-- $phase, from second $SECONDS to $phase_end at most"
        "phase_$phase"
        save_logs # a call may be killed before its end
    done
}

main() {
    local names=(predictions) argument name archive
    if [ "${1:-}" = pack ]; then
        [ $# -le 2 ] || die 2 "usage: run.sh pack [FILE]"
        cd "$here/../.." || exit 1
        # shellcheck source=bench/gpu/pack.sh
        . bench/gpu/pack.sh
        pack "${2:-}"
        return
    fi
    [ $# -gt 0 ] || die 2 "name a call, 1 or 2, or phases: ${phases[*]}; or pack"
    check_seconds
    for argument in "$@"; do
        for name in $(names_of "$argument"); do
            case " ${phases[*]} " in *" $name "*) names+=("$name") ;; *) die 2 "no phase $name; there are ${phases[*]}, and the calls 1 and 2" ;; esac
        done
    done
    out=$(absolute "${OUT:-runs/gpu}") archive=${ARCHIVE:-$here/mics-gpu.tar.xz}
    if [ -f "$here/PACKED" ]; then
        root=$here
    elif [ -n "${ARCHIVE:-}" ] || [ -f "$archive" ]; then
        enter_archive "$(absolute "$archive")" "$@"
    else
        root=$(cd "$here/../.." && pwd)
    fi
    # shellcheck source=bench/gpu/phases.sh
    . "$root/bench/gpu/phases.sh"
    # shellcheck source=bench/gpu/steps.sh
    . "$root/bench/gpu/steps.sh"
    settle
    if [ ! -f PACKED ] && [ -z "$emulated" ] && [ -z "${MICS_CUDA_PLUGIN:-}" ]; then
        compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ] ||
            die 77 "no usable GPU: there is no /dev/nvidia0; EMULATED=1 tries the script without one"
        # shellcheck source=bench/gpu/pack.sh
        . bench/gpu/pack.sh
        build "${MICS_CUDA_ARCHITECTURES:-80-real;90}"
    fi
    ask_doctor "${names[1]}" $((SECONDS_MAX < FIRST_ANSWER_S ? SECONDS_MAX : FIRST_ANSWER_S))
    begin_report "$@"
    run_phases "${names[@]}"
    say "failed: $failed; tests skipped: $skipped_tests, cases of others: $skipped_cases; $SECONDS s"
    [ "$failed" = 0 ]
}

main "$@"
