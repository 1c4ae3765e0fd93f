#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in parts of at most 9 minutes, for a GPU that is rented by the minute: one archive goes
# there, a report and its logs come back. There it needs neither a network nor a compiler. Python is needed by the phase
# `torch` (with a C compiler, to compile), and where the libraries of CUDA are in its wheels.
#
#   bench/gpu/run.sh pack [FILE]        here: builds what it packs, and makes the archive (BUILD/mics-gpu.tar.xz)
#   run.sh 1 | 2 | 3 | PHASE...         there, beside the archive: a part, or the phases named
#
#   1   tests golden losses kernels large shardings
#   2   shapes profile kernels_more
#   3   torch sanitizer
#
#   tests         the tests of tests/cuda on the chip, skips counted     large        GPT-2 1.5B, whole steps
#   golden        logits beside another implementation's                 shapes       GPT-2 124M and a stack of Llama-3-8B's
#   losses        short loss curves beside the CPU's                                  shape: graphs and autotuning on and off
#   kernels       each beside its floor, at 1600 channels                profile      ncu over the attention kernels
#   kernels_more  at 768 and 4096                                        torch        the same steps in PyTorch
#   shardings     all, at 1, 2, 4 and 8 ranks on the one GPU             sanitizer    compute-sanitizer over small tests
#
# The most telling phases come first, and the report names what no time was left for. Every phase asks `mics doctor` first.
#
#   ARCHIVE=         what `pack` made; by default mics-gpu.tar.xz beside this script. Without one it builds its checkout
#   OUT=runs/gpu     gets report.txt, which grows from call to call, and logs.tar.xz; nothing else is left
#   MINUTES=9        of a call
#   PYTHON=python3   has torch, for the phase `torch`; its nvidia/*/lib folders, if any, are where cuBLAS and NCCL are
#                    looked for first
#   BUILD=           build-pack for `pack`, else build-gpu
#   EMULATED=1       tries the script on the emulated GPU of BUILD, in tiny sizes, without ncu, PyTorch and sanitizer
#
# Exit status: 0; 1 when a check failed; 2 for wrong usage; 77 when no GPU is usable, in one line that says why.
set -uo pipefail

script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")
here=$(dirname "$script")
emulated=${EMULATED:-} python=${PYTHON:-python3}
failed=0 skipped_tests=0 skipped_cases=0
readonly LIMIT_BYTES=$((20 * 1024 * 1024)) # of the archive
readonly GIB=$((1024 * 1024 * 1024))
readonly PACKING_S=12                      # kept for the logs at the end
readonly ANSWER_S=60                       # for what answers in seconds, unless the driver hangs
readonly MIN_PHASE_S=10                    # none begins with less
readonly TORCH_S=400                       # for all rows of PyTorch together, compiling included
readonly AUTOTUNE=run.gemm_autotune        # the run file's key
readonly benches=(gpu_op_speed gpu_random_tokens)
readonly phases=(tests golden losses kernels kernels_more large shapes shardings profile torch sanitizer)
# Shape, length and sequences of whole steps.
readonly large_rows=("gpt2-1.5b 1024 8" "gpt2-1.5b 1024 16")
readonly shape_rows=("gpt2-124m 1024 32" "llama-8b-shaped 1024 8" "gpt2-124m 4096 8" "llama-8b-shaped 4096 2")

die() { # STATUS TEXT
    echo "run.sh: $2" >&2
    exit "$1"
}

absolute() { # PATH
    case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac
}

# The names of the tests in tests/cuda, those of the engine last: they take longest. The archive has programs alone.
cuda_tests() {
    local path names=() all=(tests/cuda/test_*cuda*.c)
    [ ! -f PACKED ] || all=(bin/test_*)
    for path in "${all[@]}"; do names+=("$(basename "$path" .c)"); done
    printf '%s\n' "${names[@]}" | grep -v engine
    printf '%s\n' "${names[@]}" | grep engine
}

# ---- build and pack ----

build() { # ARCHITECTURES OPTION...
    local architectures=$1 log targets
    shift
    log=$(mktemp)
    mapfile -t targets <<<"$(cuda_tests)"
    if cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DMICS_CUDA=ON -DMICS_CUDA_ARCHITECTURES="$architectures" \
        -DMICS_TESTS=ON -DMICS_BENCH=ON "$@" >"$log" 2>&1 &&
        cmake --build "$build" -j "${JOBS:-$(nproc)}" --target mics_cli mics_cuda "${targets[@]}" "${benches[@]}" \
            >"$log" 2>&1; then
        rm -f "$log"
        return
    fi
    tail -n 20 "$log" >&2
    rm -f "$log"
    die 1 "the build in $build failed"
}

program_in() { # FOLDER NAME
    find "$1" -maxdepth 4 -type f -name "$2" -perm -u+x | head -n 1
}

# The libraries that programs need and a bare system with CUDA lacks. It has the C and C++ libraries and zlib; others come
# with the driver, the toolkit or PyTorch.
libraries_of() { # PROGRAM...
    ldd "$@" | awk '$3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|libpthread|librt|libstdc\+\+|libgcc_s|libz|libcuda[a-z]*|libcublas[^/]*|libnccl)\.so'
}

# Runs from the checkout, with a build folder of its own.
pack() { # [FILE]
    local archive stage tree name path bytes
    build=$(absolute "${BUILD:-build-pack}") archive=$(absolute "${1:-$build/mics-gpu.tar.xz}")
    # MPI is what a machine with one GPU has no use for, and often lacks.
    build 90-real -DMICS_MPI=OFF -DMICS_TEST_DATA=tests/golden
    stage=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$stage'" EXIT
    tree=$stage/mics-gpu
    mkdir -p "$tree/bin" "$tree/lib" "$(dirname "$archive")"
    for name in mics libmics_cuda.so $(cuda_tests) "${benches[@]}"; do
        path=$(program_in "$build" "$name")
        [ -n "$path" ] || die 1 "$name was not built in $build"
        if ! cp "$path" "$tree/bin/" || ! strip --strip-unneeded "$tree/bin/$name"; then
            die 1 "$name cannot be packed"
        fi
    done
    libraries_of "$tree"/bin/* | xargs -r cp -L -t "$tree/lib" || die 1 "the libraries cannot be packed"
    cp "$script" "$tree/run.sh"
    cp --parents -r bench/gpu/*.json bench/gpu/torch_gpt2.py configs/gpt2-tiny.json examples/demo.json examples/corpus \
        tests/cli/lib.sh tests/cuda/test_train_cuda.sh tests/golden "$tree/" ||
        die 1 "the run files cannot be packed"
    git describe --always --dirty 2>/dev/null >"$tree/PACKED" || echo unknown >"$tree/PACKED"
    # The script comes first, so that it can be taken out without reading all of it.
    tar -C "$stage" --owner=0 --group=0 -cf - mics-gpu/run.sh --exclude=mics-gpu/run.sh mics-gpu |
        xz -9e -T1 >"$archive" || die 1 "$archive cannot be written"
    bytes=$(stat -c %s "$archive")
    echo "$archive: $((bytes / 1024)) KiB, $(cat "$tree/PACKED"), $(find "$tree/bin" -type f | wc -l) programs"
    [ "$bytes" -le $LIMIT_BYTES ] || die 1 "that is more than $((LIMIT_BYTES / 1024)) KiB"
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
    local archive=$1
    shift
    [ -f "$archive" ] || die 2 "no archive at $archive"
    work=$(new_folder) || die 1 "no programs may run in /tmp, /var/tmp and $PWD; TMPDIR names another folder"
    unpack "$archive" "$work" || { rm -rf "$work"; die 1 "$archive cannot be unpacked"; }
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

# Logs of earlier calls stay in the archive that this one writes.
save_logs() {
    tar -C "$work" -cJf "$out/logs.tar.xz" logs 2>/dev/null ||
        (cd "$work" && "$python" -m tarfile -c "$out/logs.tar.xz" logs) || echo "run.sh: no logs.tar.xz" >&2
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
    SECONDS=${RUN_BEGAN_S:-0} deadline=$((${MINUTES:-9} * 60 - PACKING_S))
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

# Whether something may begin that takes some SECONDS: what later phases need stays theirs.
time_for() { # SECONDS WHAT
    local left=$((phase_end - SECONDS))
    [ "$left" -ge "$1" ] && return
    say "left out $2: $((left > 0 ? left : 0)) s are left, and it may take $1"
    return 1
}

# Runs a command with a limit, or until the phase's time is over; what it prints goes to NAME.log.
keep() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2 left=$((phase_end - SECONDS))
    shift 2
    [ "$left" -ge "$limit" ] || limit=$((left > 1 ? left : 1))
    timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null
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
    timeout -k 5 "$2" "${ours[@]}" "$mics" doctor --json >"$json" 2>"$logs/doctor-$1.err" </dev/null ||
        give_up 1 "mics doctor failed before $1 (status $?): $(tail -n 1 "$logs/doctor-$1.err")"
    grep -q '"usable": true' "$json" && return
    line=$(sed -n 's/.*"why_not": "\(.*\)", "plugin":.*/\1/p' "$json" | sed 's/\\\(.\)/\1/g')
    [ "$failed" = 0 ] || give_up 1 "$failed failed, then there was no usable GPU: $line"
    give_up 77 "no usable GPU: $line"
}

# ---- predictions ----

# What the planner says of a step, in ms.
predicted_ms() { # SHAPE LENGTH SEQUENCES
    timeout -k 5 $ANSWER_S "${ours[@]}" "$mics" plan "$work/speed.json" --cluster "$work/gpu.json:1" --json \
        --set "model.config=$(config_of "$1")" --set "data.sequence_length=$2" --set "train_micro_batch_size_per_gpu=$3" \
        --set 'sharding={"params": 1, "grads": 1, "optimizer": 1}' 2>"$logs/plan.err" |
        sed -n 's/.*"run_file": .*"step_ms": \([0-9.]*\),.*/\1/p' | grep . || echo -
}

# A row's shape, length and sequences; where the GPU is emulated, tiny ones.
words_of() { # ROW
    local words
    read -ra words <<<"$1"
    [ -z "$emulated" ] || words=("${words[0]}" 8 1)
    echo "${words[*]}"
}

predictions() {
    local row words
    cat >>"$report" <<'TEXT'

predicted by hand: GPT-2 1.5B, 8 x 1024 tokens, bf16, on an H100 (989 TFLOP/s, 3.35 TB/s), ms of a step
  GEMM 127.0, attention 30.0, norms + additions + GELU 14.0, cross-entropy 1.0,
  AdamW 17.3, norm 2.4, gradient conversion 3.6; in all 197, 41 % MFU
TEXT
    say "predicted by mics plan for one $accelerator, ms of a step"
    for row in "${large_rows[@]}" "${shape_rows[@]}"; do
        read -ra words <<<"$(words_of "$row")"
        say "$(printf '  %-16s %5s x %-3s %10s' "${words[@]}" "$(decimals 1 "$(predicted_ms "${words[@]}")")")"
    done
    say ""
}

# ---- checks ----

# One program of tests/cuda.
run_test() { # SECONDS NAME
    local name=$2 program status skipped
    program=$(program_in "$bin" "$name")
    [ -n "$program" ] || { bad "$name: was not built"; return; }
    time_for 5 "$name" || return
    keep "$1" "$name" "${ours[@]}" "$program"
    status=$?
    skipped=$(sed -n 's/^skipped \([0-9]*\) of [0-9]* cases$/\1/p' "$logs/$name.log" | tail -n 1)
    case $status in
    0)
        skipped_cases=$((skipped_cases + ${skipped:-0}))
        say "passed   $name${skipped:+ (cases skipped: $skipped)}"
        ;;
    77)
        # mics doctor has found a GPU.
        if grep -q '^no GPU: ' "$logs/$name.log"; then bad "$name: $(last_line "$name")"; else skipped "$name"; fi
        ;;
    124 | 137) bad "$name: not done when its time was over: $(last_line "$name")" ;;
    *) bad "$name: status $status: $(grep -E 'LINE|ERROR|error' "$logs/$name.log" | tail -n 1)" ;;
    esac
}

phase_tests() {
    local name names status
    mapfile -t names <<<"$(cuda_tests | grep -v golden)"
    # The suite runs all of them on the emulated GPU anyway.
    [ -z "$emulated" ] || names=(test_device_cuda test_cuda_lm_head)
    for name in "${names[@]}"; do
        run_test 60 "$name"
    done
    [ -z "$emulated" ] || return 0
    time_for 20 test_train_cuda || return 0
    keep 120 test_train_cuda "${ours[@]}" sh tests/cuda/test_train_cuda.sh "$mics"
    status=$?
    case $status in
    0) say "passed   test_train_cuda; $(last_line test_train_cuda)" ;;
    77) skipped test_train_cuda ;;
    124 | 137) bad "test_train_cuda: not done when its time was over" ;;
    *) bad "test_train_cuda: $(grep FAILED "$logs/test_train_cuda.log" | tail -n 1)" ;;
    esac
}

phase_golden() {
    run_test 60 test_cuda_golden
}

# find's status says nothing: it is 1 where one of the folders is missing.
tool_of() { # NAME: a tool of CUDA's
    local found
    found=$(command -v "$1" || find /usr/local/cuda/bin /usr/local/cuda-*/bin /opt/nvidia -maxdepth 4 -name "$1" \
        -perm -u+x 2>/dev/null | head -n 1)
    [ -n "$found" ] && echo "$found"
}

phase_sanitizer() {
    local tool name program sanitizer pair
    [ -z "$emulated" ] || { say "left out compute-sanitizer: the GPU is emulated"; return; }
    sanitizer=$(tool_of compute-sanitizer) || { say "left out compute-sanitizer: it is not installed"; return; }
    for pair in memcheck:test_cuda_op_rows racecheck:test_cuda_op_rows memcheck:test_cuda_attention \
        racecheck:test_cuda_attention memcheck:test_cuda_op_flat memcheck:test_cuda_op_sums memcheck:test_cuda_linear \
        synccheck:test_cuda_attention initcheck:test_cuda_op_rows; do
        tool=${pair%%:*} name=${pair#*:}
        program=$(program_in "$bin" "$name")
        [ -n "$program" ] || { bad "$name: was not built"; continue; }
        time_for 15 "$tool of $name" || continue
        keep 100 "$tool-$name" "${ours[@]}" "$sanitizer" --tool "$tool" --error-exitcode 9 "$program"
        case $? in
        0) say "clean    $tool of $name" ;;
        124 | 137) say "left out $tool of $name: not done in its time; $(grep -c ERROR "$logs/$tool-$name.log") found till then" ;;
        *) bad "$tool of $name: $(grep -m 1 -E '=========.*(rror|ace|nitialized)' "$logs/$tool-$name.log")" ;;
        esac
    done
}

# ---- losses ----

# Trains the demo's model; the losses by step go to NAME.losses.
demo() { # SECONDS NAME STEPS ARGUMENTS...
    local limit=$1 name=$2 steps=$3 tiny=()
    shift 3
    [ -z "$emulated" ] || tiny=(--set "model.config=$work/tiny.json" --set data.sequence_length=8)
    rm -rf "$work/run"
    keep "$limit" "$name" "${ours[@]}" "$mics" train examples/demo.json --out "$work/run" --steps "$steps" \
        --set run.validation_batches=0 --set zero_optimization=null --set run.precision=auto "${tiny[@]}" "$@" || return
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$work/run/metrics.jsonl" >"$logs/$name.losses"
}

# The largest relative difference of two runs' losses.
difference() { # NAME NAME
    paste -d ' ' "$logs/$1.losses" "$logs/$2.losses" | awk '
        NF == 4 { d = ($2 - $4) / $4; d = d < 0 ? -d : d; most = d > most ? d : most; steps++ }
        NF != 4 { short = 1 }
        END { printf "%.3g", steps == 0 || short ? 9 : most }'
}

within() { # LIMIT NAME REFERENCE
    local found
    found=$(difference "$2" "$3")
    if awk "BEGIN { exit !($found <= $1) }"; then
        say "passed   losses of $2 within $found of $3 (at most $1)"
    else
        bad "losses of $2 differ by $found from $3 (at most $1)"
    fi
}

phase_losses() {
    local steps=100 name options=(--ranks 1 --set train_micro_batch_size_per_gpu=16)
    [ -z "$emulated" ] || steps=2 options=(--ranks 1 --set train_micro_batch_size_per_gpu=1)
    time_for 20 "loss curves" || return 0
    demo 60 cpu-fp32 $steps "${options[@]}" --set run.device=cpu || { bad "the CPU's run: $(last_line cpu-fp32)"; return; }
    for name in bf16 fp32 tf32 fp16; do
        time_for 5 "losses of $name" || continue
        demo 30 "gpu-$name" $steps "${options[@]}" --set run.device=cuda --set run.precision=$name ||
            { bad "gpu-$name: $(last_line "gpu-$name")"; continue; }
        case $name in
        fp32) within 1e-3 gpu-fp32 cpu-fp32 ;;
        *) within 1e-2 "gpu-$name" cpu-fp32 ;;
        esac
    done
}

# Every sharding at 1, 2, 4 and 8 ranks of the one GPU: the losses of one rank, and bytes and memory as predicted.
phase_shardings() {
    local ranks steps=10 counts="1 2 4 8" name degrees
    [ -z "$emulated" ] || { steps=1 counts="2"; }
    local options=(--set run.device=cuda --set train_batch_size=16 --set gradient_accumulation_steps=2
        --set train_micro_batch_size_per_gpu=null --set run.precision=bf16 --set run.param_persistence_threshold=0)
    [ -z "$emulated" ] || options+=(--set train_batch_size=4)
    time_for 10 "shardings" || return 0
    demo 60 one $steps --ranks 1 "${options[@]}" || { bad "one rank: $(last_line one)"; return; }
    for ranks in $counts; do
        local half=$((ranks > 1 ? ranks / 2 : 1)) nodes=$((ranks > 2 ? 2 : 1))
        for name in mics zero3 ddp zero1 zero2 mics+ hpz; do
            case $name in
            ddp) degrees="1 1 1" ;; zero1) degrees="1 1 $ranks" ;; zero2) degrees="1 $ranks $ranks" ;;
            zero3) degrees="$ranks $ranks $ranks" ;; mics) degrees="$half $half $half" ;;
            mics+) degrees="$half $half $ranks" ;; hpz) degrees="$half $ranks $ranks" ;;
            esac
            time_for 5 "$name at $ranks ranks" || continue
            # shellcheck disable=SC2086
            set -- $degrees
            demo 40 "$name-$ranks" $steps --ranks "$ranks" --nodes "$nodes" "${options[@]}" \
                --set "sharding={\"params\": $1, \"grads\": $2, \"optimizer\": $3}" ||
                { bad "$name at $ranks ranks: $(last_line "$name-$ranks")"; continue; }
            grep -E ' (B|KiB|MiB|GiB) .*[^t]$' "$logs/$name-$ranks.log" | grep -q 'intra-node\|inter-node\|in all' &&
                bad "$name at $ranks ranks: a prediction was not exact"
            within 5e-3 "$name-$ranks" one
        done
    done
}

# ---- kernels ----

kernels_at() { # CHANNELS
    local channels=$1 program
    program=$(program_in "$bin" gpu_op_speed)
    [ -n "$program" ] || { bad "gpu_op_speed: was not built"; return; }
    local sizes=(--channels "$channels" --rows 8192 --length 1024 --heads $((channels / 64)) --words 50257 --dtype bf16)
    [ -z "$emulated" ] || sizes=(--tiny)
    time_for 10 "kernels at $channels channels" || return 0
    keep 90 "kernels-$channels" "${ours[@]}" "$program" "${sizes[@]}" ||
        { bad "gpu_op_speed at $channels channels: $(last_line "kernels-$channels")"; return; }
    say "kernels, ${sizes[*]}: each beside its floor"
    cat "$logs/kernels-$channels.log" >>"$report"
}

phase_kernels() {
    kernels_at 1600
}

phase_kernels_more() {
    kernels_at 768
    kernels_at 4096
}

# ncu needs permission to read the chip's counters, which rented machines often lack.
phase_profile() {
    local ncu kernel program
    [ -z "$emulated" ] || { say "left out profiles: the GPU is emulated"; return; }
    ncu=$(tool_of ncu) || { say "left out profiles: ncu is not installed"; return; }
    program=$(program_in "$bin" gpu_op_speed)
    for kernel in attention_forward attention_backward_q attention_backward_kv; do
        time_for 20 "a profile of $kernel" || continue
        # The first two launches warm up.
        keep 90 "ncu-$kernel" "${ours[@]}" "$ncu" --clock-control none --set full --kernel-name "regex:$kernel" \
            --launch-skip 2 --launch-count 1 "$program" --channels 1600 --rows 8192 --length 1024 --heads 25 --words 50257 \
            --dtype bf16
        if grep -q 'Duration' "$logs/ncu-$kernel.log"; then
            say "profile of $kernel, 1600 channels, 8192 rows:"
            grep -E 'Duration|Compute \(SM\) Throughput|Memory Throughput|Registers Per|Achieved Occupancy|No Eligible|Bank conflict' \
                "$logs/ncu-$kernel.log" >>"$report"
        else
            say "left out a profile of $kernel: $(grep -m 1 -E 'ERR|rror|==WARNING==' "$logs/ncu-$kernel.log" || last_line "ncu-$kernel")"
        fi
    done
}

# ---- whole steps ----

config_of() { # SHAPE
    if [ -n "$emulated" ]; then echo "$work/tiny.json"; else echo "bench/gpu/$1.json"; fi
}

# Uniformly random tokens, made once a call.
tokens_of() { # SHAPE: prints the shard
    local words count=4000000
    words=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$(config_of "$1")")
    [ -z "$emulated" ] || count=20000
    [ -s "$work/tokens-$words.bin" ] ||
        timeout -k 5 60 "${ours[@]}" "$(program_in "$bin" gpu_random_tokens)" "$words" $count \
            "$work/tokens-$words.bin" >&2 || return
    echo "$work/tokens-$words.bin"
}

# Median of a number in metrics.jsonl, the first three steps left out.
median() { # KEY FILE
    sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | tail -n +4 | sort -g | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}

steps_in() { # FILE
    if [ -s "$1" ]; then grep -c '"step_ms"' "$1"; else echo 0; fi
}

# Trains until enough steps are timed or SECONDS are over, then kills the run: the checkpoint at its end
# would take minutes and tens of gigabytes. The words behind STEPS go to mics.
time_steps() { # NAME SECONDS SHAPE LENGTH SEQUENCES STEPS WORD...
    local name=$1 end=$((SECONDS + $2)) shape=$3 length=$4 sequences=$5 steps=$6 tokens pid
    local metrics=$work/run/metrics.jsonl
    shift 6
    [ $end -lt $phase_end ] || end=$phase_end
    tokens=$(tokens_of "$shape" 2>"$logs/$name.log") || return
    rm -rf "$work/run"
    "${ours[@]}" "$mics" train "$work/speed.json" --ranks 1 --out "$work/run" --set "model.config=$(config_of "$shape")" \
        --set "data.train=[\"$tokens\"]" --set "data.sequence_length=$length" \
        --set "train_micro_batch_size_per_gpu=$sequences" "$@" >"$logs/$name.log" 2>&1 </dev/null &
    pid=$!
    while kill -0 $pid 2>/dev/null && [ "$(steps_in "$metrics")" -lt "$steps" ] && [ "$SECONDS" -lt $end ]; do
        sleep 0.1
    done
    [ "$SECONDS" -lt $end ] || echo "stopped after $(steps_in "$metrics") steps: its time was over" >>"$logs/$name.log"
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ ! -s "$metrics" ] || cp "$metrics" "$logs/$name.jsonl"
    [ "$(steps_in "$metrics")" -ge 5 ]
}

row() {
    printf '%-16s %6s %4s  %-18s %10s %9s %10s %9s %7s %7s\n' "$@" | tee -a "$report"
}

heading() {
    say "whole steps on uniformly random tokens, bf16, one rank; ms from start to start, medians; MFU of 989 TFLOP/s by 6 N + attention"
    row shape length seqs program "tokens/s" "ms/step" predicted "of that" MFU "GiB"
}

mics_row() { # SECONDS SHAPE LENGTH SEQUENCES plain|graphs|tuned
    local need=$1 shape=$2 length=$3 sequences=$4 variant=$5 steps=23 name=$2-$3-$4-$5 settings=() metrics ms predicted
    case $variant in
    graphs) settings=(--set run.graphs=true) ;;
    tuned) settings=(--set "$AUTOTUNE=true") ;;
    esac
    [ -z "$emulated" ] || steps=5
    time_for "$need" "$shape at $length x $sequences, $variant" || return 0
    # A run that hangs must not take the others' time.
    if ! time_steps "$name" $((3 * need)) "$shape" "$length" "$sequences" $steps "${settings[@]}"; then
        bad "steps of $shape at $length x $sequences, $variant: $(last_line "$name")"
        return
    fi
    metrics=$logs/$name.jsonl
    ms=$(median step_ms "$metrics") predicted=$(predicted_ms "$shape" "$length" "$sequences")
    row "$shape" "$length" "$sequences" "mics, $variant" "$(decimals 0 "$(median tokens_per_s "$metrics")")" \
        "$(decimals 2 "$ms")" "$(decimals 1 "$predicted")" "$(ratio 3 "$ms" "$predicted")" \
        "$(decimals 4 "$(median mfu "$metrics")")" "$(ratio 1 "$(median memory_peak_bytes "$metrics")" $GIB)"
}

# A tiny one, of whatever shape, where the GPU is emulated.
mics_rows() { # SECONDS VARIANT ROW...
    local need=$1 variant=$2 row words
    shift 2
    for row in "$@"; do
        read -ra words <<<"$(words_of "$row")"
        mics_row "$need" "${words[@]}" "$variant"
        [ -z "$emulated" ] || break
    done
}

phase_large() {
    heading
    mics_rows 25 plain "${large_rows[@]}"
    mics_rows 50 tuned "${large_rows[0]}"
    mics_rows 25 graphs "${large_rows[0]}"
}

phase_shapes() {
    heading
    mics_rows 25 plain "${shape_rows[@]}"
    mics_rows 25 graphs "${shape_rows[@]}"
    mics_rows 50 tuned "${shape_rows[@]}"
}

torch_row() { # SHAPE LENGTH SEQUENCES fp32|bf16 compiled|eager: fails where nothing could be timed
    local name=torch-$1-$2-$3-$4-$5 line seconds=$((phase_end - SECONDS - 10)) gib options=()
    local program="torch, $4 params"
    [ "$5" = compiled ] || options=(--no-compile) program="torch eager, $4"
    time_for 60 "PyTorch, $1 at $2 x $3, $4 parameters" || return 0
    [ $seconds -lt 150 ] || seconds=150
    keep $((seconds + 10)) "$name" env "TORCHINDUCTOR_CACHE_DIR=$work/inductor" "TRITON_CACHE_DIR=$work/triton" \
        "$python" bench/gpu/torch_gpt2.py "bench/gpu/$1.json" --length "$2" --sequences "$3" \
        --steps 20 --params "$4" --pad-vocab 64 --seconds $seconds "${options[@]}"
    line=$(grep '^{' "$logs/$name.log" | tail -n 1)
    field() { echo "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
    [ -n "$(field step_ms)" ] ||
        { say "left out PyTorch, $1 at $2 x $3, $4 parameters, $5: $(last_line "$name")"; return 1; }
    gib=$(ratio 1 "$(field memory_peak_bytes)" $GIB)
    row "$1" "$2" "$3" "$program" "$(field tokens_per_s)" "$(field step_ms)" - - "$(field mfu)" "$gib"
}

phase_torch() {
    [ -z "$emulated" ] || { say "left out PyTorch: the GPU is emulated"; return; }
    [ $((phase_end - SECONDS)) -le $TORCH_S ] || phase_end=$((SECONDS + TORCH_S))
    keep 60 torch "$python" -c 'import torch; assert torch.cuda.is_available(), "no GPU for it"' ||
        { say "left out PyTorch: $python has none that sees the GPU: $(last_line torch)"; return; }
    heading
    # Compiling needs a C compiler there; rows that are not compiled are better than none.
    local how=compiled
    torch_row gpt2-1.5b 1024 8 fp32 $how || { how=eager; torch_row gpt2-1.5b 1024 8 fp32 $how; }
    torch_row gpt2-1.5b 1024 8 bf16 $how
    torch_row gpt2-124m 1024 32 fp32 $how
    torch_row gpt2-1.5b 1024 16 fp32 $how
    torch_row llama-8b-shaped 1024 8 bf16 $how
}

# ---- a call ----

# Seconds that a phase is sure of: those before it leave them alone.
reserved_s() { # PHASE
    case $1 in
    tests) echo 150 ;;
    golden) echo 20 ;;
    losses) echo 70 ;;
    kernels) echo 45 ;;
    large) echo 150 ;;
    shapes) echo 400 ;;
    torch) echo 400 ;;
    profile | sanitizer) echo 80 ;;
    *) echo 0 ;; # has what is left over
    esac
}

names_of() { # ARGUMENT: a part's phases, or the argument
    case $1 in
    1) echo tests golden losses kernels large shardings ;;
    2) echo shapes profile kernels_more ;;
    3) echo torch sanitizer ;;
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
    timeout -k 5 $ANSWER_S "${ours[@]}" "$mics" doctor </dev/null | grep -E '^(GPU|CUDA|NCCL|links)' | tee -a "$report"
    write_inputs
    grep -q '^predicted by mics plan' "$report" || predictions
}

run_phases() { # PHASE...
    local phase later left rest asked=1
    while [ $# -gt 0 ]; do
        phase=$1 rest=0
        shift
        for later in "$@"; do rest=$((rest + $(reserved_s "$later"))); done
        # Later phases keep their time. Where the call has too little for all, earlier ones come first.
        phase_end=$((deadline - rest))
        [ $((phase_end - SECONDS)) -ge "$(reserved_s "$phase")" ] || phase_end=$((SECONDS + $(reserved_s "$phase")))
        [ $phase_end -le $deadline ] || phase_end=$deadline
        left=$((deadline - SECONDS))
        if [ $left -lt $MIN_PHASE_S ]; then
            say "left out $phase: $((left > 0 ? left : 0)) s are left"
            continue
        fi
        # For the first phase it was asked before anything was said.
        [ -n "$asked" ] || ask_doctor "$phase" $((left < ANSWER_S ? left : ANSWER_S))
        asked=
        say "-- $phase, $SECONDS s"
        "phase_$phase"
        save_logs # a call may be killed before its end
    done
}

main() {
    local names=() argument name archive
    if [ "${1:-}" = pack ]; then
        [ $# -le 2 ] || die 2 "usage: run.sh pack [FILE]"
        cd "$here/../.." || exit 1
        pack "${2:-}"
        return
    fi
    [ $# -gt 0 ] || die 2 "name a part, 1, 2 or 3, or phases: ${phases[*]}; or pack"
    for argument in "$@"; do
        for name in $(names_of "$argument"); do
            case " ${phases[*]} " in *" $name "*) names+=("$name") ;; *) die 2 "no phase $name; there are ${phases[*]}, and the parts 1, 2 and 3" ;; esac
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
    settle
    if [ ! -f PACKED ] && [ -z "$emulated" ] && [ -z "${MICS_CUDA_PLUGIN:-}" ]; then
        compgen -G '/dev/nvidia[0-9]*' >/dev/null || [ -e /dev/dxg ] ||
            die 77 "no usable GPU: there is no /dev/nvidia0; EMULATED=1 tries the script without one"
        build "${MICS_CUDA_ARCHITECTURES:-80-real;90}"
    fi
    ask_doctor "${names[0]}" $ANSWER_S
    begin_report "$@"
    run_phases "${names[@]}"
    say "failed: $failed; tests skipped: $skipped_tests, cases of others: $skipped_cases; $SECONDS s"
    [ "$failed" = 0 ]
}

main "$@"
