#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a GPU, in one call of at most 25 minutes: builds, runs the tests of tests/cuda on the chip, looks for
# stray accesses, compares losses with the processor's, trains under every sharding with several ranks on the one
# GPU, times every kernel beside its floor and whole steps beside PyTorch. Ends with a table and OUT/report.txt.
#
#   bench/gpu/run.sh [PHASE...]            all phases, or those named: build tests sanitizer losses shardings kernels speed
#   bench/gpu/run.sh pack DIR              what is built, with its libraries, for a machine that has no compilers
#
#   BUILD=build-gpu   where to build, or where it is built (with PACKED=1: what `pack` wrote; nothing is built)
#   OUT=runs/gpu      where logs and the report go
#   MINUTES=25        what is not begun by then is left out, and said so
#   PYTHON=python3    with torch, for the comparison; without it that is left out
#   EMULATED=1        tries the script itself on the emulated GPU, in tiny sizes, without sanitizer and PyTorch
#
# Exit status: 0; 1 when a check failed; 77 when there is no GPU, in one line that says why.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=${BUILD:-build-gpu} out=${OUT:-runs/gpu} python=${PYTHON:-python3}
case $build in /*) ;; *) build=$PWD/$build ;; esac
case $out in /*) ;; *) out=$PWD/$out ;; esac
emulated=${EMULATED:-}
mics=$build/mics
[ -z "${PACKED:-}" ] || export LD_LIBRARY_PATH=$build/lib:${LD_LIBRARY_PATH:-}
[ -z "$emulated" ] || export MICS_CUDA_PLUGIN=$build/libmics_cuda_emulated.so
readonly all_phases=(build tests sanitizer losses shardings kernels speed)
readonly tests=(test_device_cuda test_cuda_op_flat test_cuda_op_rows test_cuda_linear test_cuda_lm_head
    test_cuda_attention test_cuda_comm test_cuda_engine test_cuda_engine_faults)
readonly benches=(gpu_op_speed gpu_attention_speed)
failed=0

say() {
    echo "$*" | tee -a "$out/report.txt"
}

bad() {
    failed=$((failed + 1))
    say "FAILED   $*"
}

# Whether there is time for something that may take so many seconds.
time_for() { # SECONDS WHAT
    local left=$((${MINUTES:-25} * 60 - SECONDS))
    [ "$left" -gt "$1" ] && return
    say "left out $2: $left s are left, and it may take $1"
    return 1
}

# Runs a command with a limit, keeping what it prints in OUT/NAME.log.
keep() { # SECONDS NAME COMMAND...
    local limit=$1 name=$2
    shift 2
    timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 </dev/null
}

program_of() { # NAME: where a test or bench was built
    find "$build" -maxdepth 4 -type f -name "$1" -perm -u+x | head -n 1
}

# ---- build and pack ----

phase_build() {
    [ -z "${PACKED:-}" ] && [ -z "$emulated" ] || return 0
    keep 900 build bash -c "cmake -S . -B '$build' -DCMAKE_BUILD_TYPE=Release -DMICS_CUDA=ON \
        -DMICS_CUDA_ARCHITECTURES='${MICS_CUDA_ARCHITECTURES:-80-real;90}' && \
        cmake --build '$build' -j '${JOBS:-$(nproc)}' --target mics_cli mics_cuda ${tests[*]} ${benches[*]}" || {
        tail -n 20 "$out/build.log"
        bad "build; see $out/build.log"
        exit 1
    }
    say "built    in $SECONDS s"
}

pack() { # DIR
    local name path
    mkdir -p "$1/lib"
    cp "$build/mics" "$build/libmics_cuda.so" "$1/"
    for name in "${tests[@]}" "${benches[@]}"; do
        path=$(program_of "$name") && [ -n "$path" ] && cp "$path" "$1/"
    done
    # Of the system's libraries those that a bare one lacks; the C library and CUDA's own are there.
    ldd "$1"/mics "$1"/test_* | awk '$3 ~ /^\// { print $3 }' | sort -u |
        grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libcuda|libcublas[^/]*|libcudnn[^/]*)\.so' |
        xargs -r cp -L -t "$1/lib"
    du -sh "$1"
}

# ---- checks ----

phase_tests() {
    local name program
    for name in "${tests[@]}"; do
        program=$(program_of "$name")
        [ -n "$program" ] || { bad "$name: was not built"; continue; }
        time_for 180 "$name" || continue
        keep 180 "$name" "$program"
        case $? in
        0) say "passed   $name" ;;
        77) say "skipped  $name: $(tail -n 1 "$out/$name.log")" ;;
        *) bad "$name: $(grep -E 'LINE|ERROR|error' "$out/$name.log" | tail -n 1)" ;;
        esac
    done
    time_for 240 test_train_cuda || return
    if keep 240 test_train_cuda sh tests/cuda/test_train_cuda.sh "$mics"; then
        say "passed   test_train_cuda"
    else
        bad "test_train_cuda: $(grep FAILED "$out/test_train_cuda.log" | tail -n 1)"
    fi
}

phase_sanitizer() {
    local tool name program
    [ -z "$emulated" ] || return 0
    command -v compute-sanitizer >/dev/null || { say "left out compute-sanitizer: it is not installed"; return; }
    for tool in memcheck initcheck racecheck synccheck; do
        for name in test_cuda_op_flat test_cuda_op_rows test_cuda_linear test_cuda_attention; do
            program=$(program_of "$name")
            [ -n "$program" ] || continue
            time_for 120 "$tool of $name" || continue
            keep 120 "$tool-$name" compute-sanitizer --tool "$tool" --error-exitcode 9 "$program"
            case $? in
            0) say "clean    $tool of $name" ;;
            124 | 137) say "left out $tool of $name: not done in 120 s" ;;
            *) bad "$tool of $name: $(grep -m 1 -E '=========.*(rror|ace|nitialized)' "$out/$tool-$name.log")" ;;
            esac
        done
    done
}

# ---- losses ----

# Trains the demo's model; the losses by step go to OUT/NAME.losses.
demo() { # SECONDS NAME STEPS ARGUMENTS...
    local limit=$1 name=$2 steps=$3 tiny=()
    shift 3
    [ -z "$emulated" ] || tiny=(--set "model.config=$out/tiny.json" --set data.sequence_length=8)
    rm -rf "$out/run-$name"
    keep "$limit" "$name" "$mics" train examples/demo.json --out "$out/run-$name" --steps "$steps" \
        --set run.validation_batches=0 --set zero_optimization=null --set run.precision=auto "${tiny[@]}" "$@" || return
    sed -n 's/^{"step": \([0-9]*\), "loss": \([^,]*\),.*/\1 \2/p' "$out/run-$name/metrics.jsonl" >"$out/$name.losses"
}

# The largest relative difference of two runs' losses.
difference() { # NAME NAME
    paste -d ' ' "$out/$1.losses" "$out/$2.losses" | awk '
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
    local steps=100 name
    [ -z "$emulated" ] || steps=2
    local options=(--ranks 1 --set train_micro_batch_size_per_gpu=16)
    [ -z "$emulated" ] || options=(--ranks 1 --set train_micro_batch_size_per_gpu=1)
    time_for 240 "loss curves" || return
    demo 200 cpu-fp32 $steps "${options[@]}" --set run.device=cpu || { bad "the processor's run"; return; }
    for name in fp32 tf32 bf16 fp16; do
        demo 120 "gpu-$name" $steps "${options[@]}" --set run.device=cuda --set run.precision=$name ||
            { bad "gpu-$name: $(tail -n 1 "$out/gpu-$name.log")"; continue; }
        case $name in
        fp32) within 1e-3 gpu-fp32 cpu-fp32 ;;
        *) within 1e-2 "gpu-$name" cpu-fp32 ;;
        esac
    done
}

# Every sharding at 1, 2, 4 and 8 ranks of the one GPU: the losses of one rank, and bytes and memory as predicted.
phase_shardings() {
    local ranks steps=10 few="1 2 4 8" name degrees
    [ -z "$emulated" ] || { steps=1 few="2"; }
    local options=(--set run.device=cuda --set train_batch_size=16 --set gradient_accumulation_steps=2
        --set train_micro_batch_size_per_gpu=null --set run.precision=bf16 --set run.whole_below=0)
    [ -z "$emulated" ] || options+=(--set train_batch_size=4)
    demo 120 one $steps --ranks 1 "${options[@]}" || { bad "one rank: $(tail -n 1 "$out/one.log")"; return; }
    for ranks in $few; do
        local half=$((ranks > 1 ? ranks / 2 : 1)) nodes=$((ranks > 2 ? 2 : 1))
        for name in ddp zero1 zero2 zero3 mics mics+ hpz; do
            case $name in
            ddp) degrees="1 1 1" ;; zero1) degrees="1 1 $ranks" ;; zero2) degrees="1 $ranks $ranks" ;;
            zero3) degrees="$ranks $ranks $ranks" ;; mics) degrees="$half $half $half" ;;
            mics+) degrees="$half $half $ranks" ;; hpz) degrees="$half $ranks $ranks" ;;
            esac
            time_for 60 "$name at $ranks ranks" || continue
            # shellcheck disable=SC2086
            set -- $degrees
            demo 60 "$name-$ranks" $steps --ranks "$ranks" --nodes "$nodes" "${options[@]}" \
                --set "sharding={\"params\": $1, \"grads\": $2, \"optimizer\": $3}" ||
                { bad "$name at $ranks ranks: $(tail -n 1 "$out/$name-$ranks.log")"; continue; }
            grep -E ' (B|KiB|MiB|GiB) .*[^t]$' "$out/$name-$ranks.log" | grep -q 'inside nodes\|between nodes\|in all' &&
                bad "$name at $ranks ranks: a prediction was not exact"
            within 5e-3 "$name-$ranks" one
        done
    done
}

# ---- speed ----

phase_kernels() {
    local channels program
    program=$(program_of gpu_op_speed)
    [ -n "$program" ] || { bad "gpu_op_speed: was not built"; return; }
    if [ -n "$emulated" ]; then
        keep 120 kernels-tiny "$program" --tiny || bad "gpu_op_speed --tiny"
        return
    fi
    for channels in 768 1600 4096; do
        time_for 90 "kernels at $channels channels" || continue
        if keep 90 "kernels-$channels" "$program" --channels $channels --rows 8192 --length 1024 --heads $((channels / 64)) \
            --words 50257 --dtype bf16; then
            say "kernels at $channels channels, 8192 rows, bf16: each beside its floor"
            cat "$out/kernels-$channels.log" >>"$out/report.txt"
        else
            bad "gpu_op_speed at $channels channels: $(tail -n 1 "$out/kernels-$channels.log")"
        fi
    done
    program=$(program_of gpu_attention_speed)
    [ -z "$program" ] || ! time_for 60 "attention beside cuDNN's" || keep 60 attention "$program" ||
        bad "gpu_attention_speed: $(tail -n 1 "$out/attention.log")"
    [ ! -s "$out/attention.log" ] || cat "$out/attention.log" >>"$out/report.txt"
}

# Median of a number in metrics.jsonl, the first three steps left out.
median() { # KEY FILE
    sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | tail -n +4 | sort -g | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}

steps_in() { # FILE
    if [ -s "$1" ]; then grep -c '"step_ms"' "$1"; else echo 0; fi
}

# Trains until enough steps are timed, then stops hard: the checkpoint of the end would take minutes and tens of gigabytes.
# The words behind STEPS go to mics.
time_steps() { # NAME CONFIG LENGTH SEQUENCES STEPS WORD...
    local name=$1 config=$2 length=$3 sequences=$4 steps=$5 pid metrics=$out/run-$1/metrics.jsonl
    shift 5
    rm -rf "$out/run-$name"
    "$mics" train "$out/speed.json" --ranks 1 --out "$out/run-$name" --set "model.config=$config" \
        --set "data.sequence_length=$length" --set "train_micro_batch_size_per_gpu=$sequences" "$@" \
        >"$out/$name.log" 2>&1 </dev/null &
    pid=$!
    for _ in $(seq 1200); do
        kill -0 $pid 2>/dev/null || break
        [ "$(steps_in "$metrics")" -lt "$steps" ] || break
        sleep 0.1
    done
    kill -9 $pid 2>/dev/null
    wait $pid 2>/dev/null
    [ "$(steps_in "$metrics")" -ge 5 ]
}

row() {
    printf '%-16s %6s %4s  %-22s %12s %10s %7s %10s\n' "$@" | tee -a "$out/report.txt"
}

torch_row() { # SHAPE CONFIG LENGTH SEQUENCES PARAMS
    local name=torch-$1-$3-$4-$5 line
    time_for 150 "PyTorch, $1 at $3" || return
    keep 150 "$name" "$python" bench/gpu/torch_gpt2.py "$2" --length "$3" --sequences "$4" --steps 20 --params "$5" ||
        { say "left out PyTorch, $1 at $3, $5 parameters: $(tail -n 1 "$out/$name.log")"; return; }
    line=$(tail -n 1 "$out/$name.log")
    field() { echo "$line" | sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p"; }
    row "$1" "$3" "$4" "torch, $5 parameters" "$(field tokens_per_s)" "$(field step_ms)" "$(field mfu)" \
        "$(awk "BEGIN { printf \"%.1f\", $(field memory_peak_bytes) / 2 ^ 30 }")"
}

mics_row() { # NAME SHAPE CONFIG LENGTH SEQUENCES GRAPHS
    local name=$1 shape=$2 config=$3 length=$4 sequences=$5 graphs=$6 metrics=$out/run-$1/metrics.jsonl program=mics
    [ "$graphs" = false ] || program="mics, graphs"
    time_for 130 "$shape at $length, $sequences sequences, $program" || return
    if time_steps "$name" "$config" "$length" "$sequences" "${steps:-23}" --set "run.graphs=$graphs"; then
        row "$shape" "$length" "$sequences" "$program" "$(printf %.0f "$(median tokens_per_s "$metrics")")" \
            "$(printf %.2f "$(median step_ms "$metrics")")" "$(printf %.4f "$(median mfu "$metrics")")" "$(awk "BEGIN { printf \"%.1f\", $(median memory_peak_bytes "$metrics") / 2 ^ 30 }")"
    else
        bad "speed of $shape at $length, $program: $(tail -n 1 "$out/$name.log")"
    fi
}

speed_rows() { # SHAPE LENGTH SEQUENCES
    local shape=$1 length=$2 sequences=$3 config=bench/gpu/$1.json graphs
    [ -z "$emulated" ] || config=$out/tiny.json
    for graphs in false true; do
        mics_row "speed-$shape-$length-$sequences-$graphs" "$shape" "$config" "$length" "$sequences" $graphs
    done
    [ -z "$emulated" ] && [ -n "$torch" ] || return 0
    torch_row "$shape" "$config" "$length" "$sequences" fp32
    [ "$shape $length" != "gpt2-1.5b 1024" ] || torch_row "$shape" "$config" "$length" "$sequences" bf16
}

phase_speed() {
    local torch=
    for _ in $(seq 40); do cat examples/corpus/*.txt; done >"$out/text.txt"
    cat >"$out/speed.json" <<JSON
{"model": {"config": "bench/gpu/gpt2-124m.json"}, "data": {"train": ["$out/text.txt"]},
 "run": {"steps": 1000, "validation_batches": 0, "device": "cuda", "precision": "bf16", "peak_tflops": 989},
 "train_micro_batch_size_per_gpu": 8, "gradient_clipping": 1.0,
 "optimizer": {"params": {"lr": 1e-4, "weight_decay": 0.1}}}
JSON
    if [ -n "$emulated" ]; then
        steps=5 speed_rows tiny 8 1
        return
    fi
    "$python" -c 'import torch; assert torch.cuda.is_available()' 2>/dev/null && torch=1
    [ -n "$torch" ] || say "left out PyTorch: $python has none that sees the GPU"
    say "whole steps, bf16, one rank; MFU over 989 TFLOP/s by 6 N + attention"
    row shape length seqs program "tokens/s" "ms/step" MFU "GiB"
    speed_rows gpt2-1.5b 1024 8
    speed_rows gpt2-124m 1024 32
    speed_rows gpt2-124m 1024 2 # where launches weigh most
    speed_rows gpt2-1.5b 4096 2
    speed_rows gpt2-124m 4096 8
    speed_rows llama-8b-shaped 1024 8
    speed_rows llama-8b-shaped 4096 2
}

# ---- all ----

if [ "${1:-}" = pack ]; then
    [ -n "${2:-}" ] || { echo "usage: bench/gpu/run.sh pack DIR" >&2; exit 2; }
    pack "$2"
    exit
fi
[ $# -gt 0 ] || set -- "${all_phases[@]}"
for phase in "$@"; do
    case " ${all_phases[*]} " in *" $phase "*) ;; *)
        echo "bench/gpu/run.sh: no phase $phase; there are ${all_phases[*]}, and pack" >&2
        exit 2
        ;;
    esac
done
if [ -z "$emulated" ] && ! ls /dev/nvidia[0-9]* /dev/dxg >/dev/null 2>&1; then
    echo "bench/gpu/run.sh: no GPU here (no /dev/nvidia0); EMULATED=1 tries the script without one" >&2
    exit 77
fi
mkdir -p "$out"
: >"$out/report.txt"
# A model that the emulation is not long at.
sed 's/"n_embd": *[0-9]*/"n_embd": 32/; s/"n_layer": *[0-9]*/"n_layer": 1/; s/"n_head": *[0-9]*/"n_head": 2/
     s/"vocab_size": *[0-9]*/"vocab_size": 256/; s/"n_positions": *[0-9]*/"n_positions": 16/' \
    bench/gpu/gpt2-124m.json >"$out/tiny.json"
say "mics $(git describe --always --dirty 2>/dev/null || echo '(no git)'), $(date -u +%Y-%m-%dT%H:%M:%SZ), $(nproc) cores"
for phase in "$@"; do
    "phase_$phase"
    if [ "$phase" = build ]; then
        [ -x "$mics" ] || { echo "bench/gpu/run.sh: no program at $mics" >&2; exit 1; }
        "$mics" doctor | grep -E '^(GPU|CUDA|NCCL|links)' | tee -a "$out/report.txt"
        if "$mics" doctor --json | grep -q '"usable": false'; then
            echo "bench/gpu/run.sh: $("$mics" doctor | grep '^GPU')" >&2
            exit 77
        fi
    fi
done
say "$failed failed, $SECONDS s; all of it in $out/report.txt"
[ "$failed" = 0 ]
