# shellcheck shell=bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The phases of run.sh that check: predictions, tests, golden models, losses, shardings, kernels; and what CUDA's own tools
# say. Sourced by it.

# Shape, length and sequences of whole steps.
readonly large_rows=("gpt2-1.5b 1024 8" "gpt2-1.5b 1024 16")
readonly shape_rows=("gpt2-124m 1024 32" "llama-8b-shaped 1024 8" "gpt2-124m 4096 8" "llama-8b-shaped 4096 2")

# ---- predictions ----

# A row's shape, length and sequences; where the GPU is emulated, tiny ones.
words_of() { # ROW
    local words
    read -ra words <<<"$1"
    [ -z "$emulated" ] || words=("${words[0]}" 8 1)
    echo "${words[*]}"
}

# What the planner says of a step, in ms.
plan() { # SHAPE LENGTH SEQUENCES
    keep $ANSWER_S plan "${ours[@]}" "$mics" plan "$work/speed.json" --cluster "$work/gpu.json:1" --json \
        --set "model.config=$(config_of "$1")" --set "data.sequence_length=$2" --set "train_micro_batch_size_per_gpu=$3" \
        --set 'sharding={"params": 1, "grads": 1, "optimizer": 1}'
    sed -n 's/.*"run_file": .*"step_ms": \([0-9.]*\),.*/\1/p' "$logs/plan.log" | grep . || echo -
}

predicted_ms() { # SHAPE LENGTH SEQUENCES
    sed -n "s/^$* //p" "$work/predicted" | grep -m 1 . || echo -
}

# What is known before the first figure. The estimates of libraries are by arithmetic: no chip has shown them.
phase_predictions() {
    local row words ms
    cat >>"$report" <<'TEXT'
predicted by hand: GPT-2 1.5B, 8 x 1024 tokens, bf16, on an H100 (989 TFLOP/s, 3.35 TB/s), ms of a step
  GEMM 127.0, attention 30.0, norms + additions + GELU 14.0, cross-entropy 1.0,
  AdamW 17.3, norm 2.4, gradient conversion 3.6; in all 197, 41 % MFU
TEXT
    say "predicted by mics plan for one $accelerator, ms of a step"
    for row in "${large_rows[@]}" "${shape_rows[@]}"; do
        read -ra words <<<"$(words_of "$row")"
        ms=$(plan "${words[@]}")
        echo "${words[*]} $ms" >>"$work/predicted"
        say "$(printf '  %-16s %5s x %-3s %10s' "${words[@]}" "$(decimals 1 "$ms")")"
    done
    say "predicted of kernels: floors, which stand beside them; of shardings: bytes exact, losses those of one rank"
    say "predicted of attention by hand, ms forward and backward: channels heads length sequences, ours, a library's"
    for row in "${attention_rows[@]}"; do say "  $row"; done
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
    124 | 137) bad "$name: killed when its time was over: $(last_line "$name")" ;;
    *) bad "$name: status $status: $(grep -E 'LINE|ERROR|error' "$logs/$name.log" | tail -n 1)" ;;
    esac
}

phase_tests() {
    local name names status
    mapfile -t names <<<"$(cuda_tests | grep -v golden)"
    # The suite runs all of them on the emulated GPU anyway.
    [ -z "$emulated" ] || names=(test_cuda_nccl_smoke test_device_cuda test_cuda_lm_head)
    for name in "${names[@]}"; do
        run_test 40 "$name"
    done
    [ -z "$emulated" ] || return 0
    time_for 20 test_train_cuda || return 0
    keep 60 test_train_cuda "${ours[@]}" sh tests/cuda/test_train_cuda.sh "$mics"
    status=$?
    case $status in
    0) say "passed   test_train_cuda; $(last_line test_train_cuda)" ;;
    77) skipped test_train_cuda ;;
    124 | 137) bad "test_train_cuda: killed when its time was over" ;;
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

# Races of our most intricate kernels first, at a small shape with several tiles and blocks, then what time is left for. An
# entry: the tool, the program and its words.
phase_sanitizer() {
    local sanitizer small="--channels 256 --rows 512 --length 256 --heads 4 --words 300 --dtype bf16"
    [ -z "$emulated" ] || { say "left out compute-sanitizer: the GPU is emulated"; return; }
    sanitizer=$(tool_of compute-sanitizer) || { say "left out compute-sanitizer: it is not installed"; return; }
    local tool program words name path entry
    for entry in "racecheck op_speed --tiny --only attention_forward,attention_backward $small" \
        "racecheck op_speed --tiny --only experts_in_forward,experts_in_backward,experts_out_forward,experts_out_backward $small" \
        "racecheck test_cuda_attention" "racecheck test_cuda_experts" "memcheck test_cuda_attention" \
        "memcheck test_cuda_op_rows" "racecheck test_cuda_op_rows" "memcheck test_cuda_op_flat" "memcheck test_cuda_op_sums" \
        "memcheck test_cuda_linear" "synccheck test_cuda_attention" "initcheck test_cuda_op_rows"; do
        read -r tool program words <<<"$entry"
        name="$tool of $program"
        [ -z "$words" ] || name="$tool of $(echo "$words" | sed 's/.*--only \([^ ]*\).*/\1/')"
        path=$(program_in "$bin" "$program")
        [ -n "$path" ] || { bad "$program: was not built"; continue; }
        time_for 8 "$name" || continue
        # shellcheck disable=SC2086
        keep 20 "${name// /-}" "${ours[@]}" "$sanitizer" --tool "$tool" --error-exitcode 9 "$path" $words
        case $? in
        0) say "clean    $name" ;;
        124 | 137) say "left out $name: not done in its time; $(grep -c ERROR "$logs/${name// /-}.log") found till then" ;;
        *) bad "$name: $(grep -m 1 -E '=========.*(rror|ace|nitialized)' "$logs/${name// /-}.log")" ;;
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
    demo 30 cpu-fp32 $steps "${options[@]}" --set run.device=cpu || { bad "the CPU's run: $(last_line cpu-fp32)"; return; }
    for name in bf16 fp32 tf32 fp16; do
        time_for 5 "losses of $name" || continue
        demo 15 "gpu-$name" $steps "${options[@]}" --set run.device=cuda --set run.precision=$name ||
            { bad "gpu-$name: $(last_line "gpu-$name")"; continue; }
        case $name in
        fp32) within 1e-3 gpu-fp32 cpu-fp32 ;;
        *) within 1e-2 "gpu-$name" cpu-fp32 ;;
        esac
    done
}

# Whether NCCL takes several ranks of one GPU, which it has to be asked for.
nccl_shares_gpus() {
    local version major minor
    version=$(sed -n 's/.*"nccl": "\([0-9.]*\).*/\1/p' "$logs"/doctor-*.json | head -n 1)
    IFS=. read -r major minor _ <<<"$version"
    if [ "${major:-0}" -gt 2 ] || { [ "${major:-0}" = 2 ] && [ "${minor:-0}" -ge 30 ]; }; then
        say "ranks that share the GPU: collectives by NCCL $version, with NCCL_MULTI_RANK_GPU_ENABLE=1"
        return
    fi
    say "ranks that share the GPU: collectives go through host memory: NCCL ${version:-is missing, which} would have to be 2.30 or newer"
    return 1
}

# NCCL says its version when it begins.
check_transport() { # NAME
    if grep -q '^.*NCCL version ' "$logs/$1.log"; then
        [ -n "$by_nccl" ] || bad "$1: by NCCL, which was not expected"
    elif [ -n "$by_nccl" ]; then
        bad "$1: not by NCCL: $(grep -m 1 -iE 'nccl|host memory' "$logs/$1.log" || echo "its log does not say why")"
    fi
}

sharding_run() { # NAME RANKS DEGREES OPTION...
    local name=$1-$2 ranks=$2 degrees
    read -ra degrees <<<"$3"
    shift 3
    time_for 3 "$name" || return 0
    demo 20 "$name" "$steps" --ranks "$ranks" --nodes $((ranks > 2 ? 2 : 1)) "$@" \
        --set "sharding={\"params\": ${degrees[0]}, \"grads\": ${degrees[1]}, \"optimizer\": ${degrees[2]}}" ||
        { bad "$name: $(last_line "$name")"; return; }
    grep -E ' (B|KiB|MiB|GiB) .*[^t]$' "$logs/$name.log" | grep -q 'intra-node\|inter-node\|in all' &&
        bad "$name: a prediction was not exact"
    within 5e-3 "$name" one
    check_transport "$name"
}

# Every sharding at 2 and 4 ranks of the one GPU: the losses of one rank, and bytes and memory as predicted.
phase_shardings() {
    local ranks half steps=10 counts="2 4" by_nccl=
    [ -z "$emulated" ] || { steps=1 counts="2"; }
    local options=(--set run.device=cuda --set train_batch_size=16 --set gradient_accumulation_steps=2
        --set train_micro_batch_size_per_gpu=null --set run.precision=bf16 --set run.param_persistence_threshold=0)
    [ -z "$emulated" ] || options+=(--set train_batch_size=4)
    export NCCL_MULTI_RANK_GPU_ENABLE=1 NCCL_DEBUG=VERSION
    ! nccl_shares_gpus || by_nccl=1
    time_for 5 "shardings" || return 0
    demo 30 one $steps --ranks 1 "${options[@]}" || { bad "one rank: $(last_line one)"; return; }
    for ranks in $counts; do
        half=$((ranks / 2))
        sharding_run mics "$ranks" "$half $half $half" "${options[@]}"
        sharding_run zero3 "$ranks" "$ranks $ranks $ranks" "${options[@]}"
        sharding_run ddp "$ranks" "1 1 1" "${options[@]}"
        sharding_run mics+ "$ranks" "$half $half $ranks" "${options[@]}"
        sharding_run hpz "$ranks" "$half $ranks $ranks" "${options[@]}"
        sharding_run zero1 "$ranks" "1 1 $ranks" "${options[@]}"
        sharding_run zero2 "$ranks" "1 $ranks $ranks" "${options[@]}"
    done
    unset NCCL_MULTI_RANK_GPU_ENABLE NCCL_DEBUG
}

# ---- kernels ----

kernels_at() { # CHANNELS
    local channels=$1 program
    program=$(program_in "$bin" op_speed)
    [ -n "$program" ] || { bad "op_speed: was not built"; return; }
    local sizes=(--channels "$channels" --rows 8192 --length 1024 --heads $((channels / 64)) --words 50257 --dtype bf16)
    [ -z "$emulated" ] || sizes=(--tiny)
    time_for 5 "kernels at $channels channels" || return 0
    keep 60 "kernels-$channels" "${ours[@]}" "$program" "${sizes[@]}" ||
        { bad "op_speed at $channels channels: $(last_line "kernels-$channels")"; return; }
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

# ncu needs permission to read the chip's counters, which rented machines often lack. An entry: the op, and its kernel.
phase_profile() {
    local ncu program entry op kernel log
    [ -z "$emulated" ] || { say "left out profiles: the GPU is emulated"; return; }
    ncu=$(tool_of ncu) || { say "left out profiles: ncu is not installed"; return; }
    program=$(program_in "$bin" op_speed)
    for entry in attention_forward:attention_forward attention_backward:attention_backward_kv \
        attention_backward:attention_backward_q adamw_update:adamw_op lm_head_backward:entropy_kernel \
        layernorm_backward:norm_backward layernorm_forward:norm_forward gelu_backward:gelu experts_in_forward:grouped_rows \
        experts_in_backward:grouped_weights; do
        op=${entry%%:*} kernel=${entry#*:} log=$logs/ncu-${entry#*:}.log
        time_for 6 "a profile of $kernel" || continue
        # The first two launches warm up.
        keep 20 "ncu-$kernel" "${ours[@]}" "$ncu" --clock-control none --set full --kernel-name-base demangled \
            --kernel-name "regex:$kernel" --launch-skip 2 --launch-count 1 "$program" --only "$op" --channels 1600 \
            --rows 8192 --length 1024 --heads 25 --words 50257 --dtype bf16
        if grep -q 'Duration' "$log"; then
            say "profile of $kernel, 1600 channels, 8192 rows:"
            grep -E 'Duration|Compute \(SM\) Throughput|Memory Throughput|Registers Per|Achieved Occupancy|No Eligible|Bank conflict' \
                "$log" >>"$report"
        else
            say "left out a profile of $kernel: $(grep -m 1 -E 'ERR|rror|==WARNING==' "$log" || last_line "ncu-$kernel")"
        fi
    done
}
