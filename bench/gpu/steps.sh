# shellcheck shell=bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
# The phases of run.sh that time whole steps and attention, beside PyTorch's. Sourced by it.

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
        keep $ANSWER_S tokens "${ours[@]}" "$(program_in "$bin" gpu_random_tokens)" "$words" $count "$work/tokens-$words.bin" ||
        { last_line tokens >&2; rm -f "$work/tokens-$words.bin"; return 1; }
    echo "$work/tokens-$words.bin"
}

# Median of a number in metrics.jsonl, the first three steps left out.
median() { # KEY FILE
    sed -n "s/.*\"$1\": \([-0-9.e+]*\).*/\1/p" "$2" | tail -n +4 | sort -g | awk '{ v[NR] = $1 } END { print NR ? v[int((NR + 1) / 2)] : "-" }'
}

steps_in() { # FILE
    if [ -s "$1" ]; then grep -c '"step_ms"' "$1"; else echo 0; fi
}

# Trains until enough steps are timed or SECONDS are over, then kills the run: the checkpoint at its end would take minutes
# and tens of gigabytes. The words behind STEPS go to mics. Fails where too few are timed.
time_steps() { # NAME SECONDS SHAPE LENGTH SEQUENCES STEPS WORD...
    local name=$1 end=$((SECONDS + $2)) shape=$3 length=$4 sequences=$5 steps=$6 tokens pid last
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
    last=$(sed -n 's/.*"step_ms": \([0-9.e+]*\).*/\1/p' "$metrics" 2>/dev/null | tail -n 1)
    [ "$SECONDS" -lt $end ] ||
        echo "stopped after $(steps_in "$metrics") steps${last:+, the last of $last ms}: its time was over" >>"$logs/$name.log"
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

mics_row() { # SECONDS KEPT SHAPE LENGTH SEQUENCES plain|graphs|tuned: leaves the seconds kept to the rows behind it
    local need=$1 kept=$2 shape=$3 length=$4 sequences=$5 variant=$6 steps=23 settings=() metrics ms predicted limit
    local name=$shape-$length-$sequences-$variant
    limit=$((phase_end - SECONDS - kept))
    case $variant in
    graphs) settings=(--set run.graphs=true) ;;
    tuned) settings=(--set run.gemm_autotune=true) ;;
    esac
    [ -z "$emulated" ] || steps=5
    time_for "$need" "$shape at $length x $sequences, $variant" || return 0
    if ! time_steps "$name" $((limit > need ? limit : need)) "$shape" "$length" "$sequences" $steps "${settings[@]}"; then
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
mics_rows() { # SECONDS KEPT VARIANT ROW...
    local need=$1 kept=$2 variant=$3 words
    shift 3
    while [ $# -gt 0 ]; do
        read -ra words <<<"$(words_of "$1")"
        shift
        mics_row "$need" $((kept + need * $#)) "${words[@]}" "$variant"
        [ -z "$emulated" ] || break
    done
}

# One step of the largest model at batch 8 is what the call is for: only batch 16 has time kept beside it.
phase_large() {
    heading
    mics_rows 15 0 plain "${large_rows[@]}"
    mics_rows 20 15 tuned "${large_rows[0]}"
    mics_rows 15 0 graphs "${large_rows[0]}"
}

phase_shapes() {
    heading
    mics_rows 12 0 plain "${shape_rows[@]}"
    mics_rows 12 0 graphs "${shape_rows[@]}"
    mics_rows 25 0 tuned "${shape_rows[@]}"
}

# ---- attention ----

# Channels, heads, length and sequences of whole steps of GPT-2 1.5B and of Llama-3-8B's shape, and what a layer's forward and
# backward are estimated to take, in ms, by our kernels and by a library's.
readonly attention_rows=("1600 25 1024 8 0.65 0.31" "4096 32 8192 1 8.9 3.7")

attention_row() { # CHANNELS HEADS LENGTH SEQUENCES PROGRAM PREDICTED FORWARD_US BACKWARD_US
    local both
    both=$(awk -v a="$7" -v b="$8" 'BEGIN { printf "%.3f", (a + b) / 1000 }')
    printf '%8s %5s %6s %4s  %-20s %11s %11s %9s %9s %9s\n' "${@:1:5}" "$(decimals 1 "$7")" "$(decimals 1 "$8")" "$both" "$6" \
        "$(ratio 3 "$both" "$6")" | tee -a "$report"
}

attention_ours() { # CHANNELS HEADS LENGTH SEQUENCES OURS LIBRARY
    local name=attention-$1-$3 sizes
    sizes=(--channels "$1" --rows $(($3 * $4)) --length "$3" --heads "$2" --words 100 --dtype bf16)
    [ -z "$emulated" ] || sizes=(--tiny)
    time_for 3 "attention at $1 channels" || return
    keep 10 "$name" "${ours[@]}" "$(program_in "$bin" op_speed)" "${sizes[@]}" --json \
        --only attention_forward,attention_backward ||
        { bad "op_speed --only attention_forward,attention_backward: $(last_line "$name")"; return; }
    of() { sed -n "s/.*\"op\": \"attention_$1\".*\"us\": \([0-9.]*\).*/\1/p" "$logs/$name.log"; }
    attention_row "${@:1:4}" mics "$5" "$(of forward)" "$(of backward)"
}

# What PyTorch's own kernels take, each backend by itself, in a log of lines for all shapes.
attention_of_torch() { # CHANNELS HEADS LENGTH SEQUENCES OURS LIBRARY
    local line
    field() { echo "$line" | sed -n "s/.*\"$1\": \"\{0,1\}\([^\",}]*\).*/\1/p"; }
    grep -F "\"shape\": \"$1,$2,$3,$4\"" "$logs/torch-attention.log" >"$work/lines" || {
        say "left out PyTorch's attention at $1 channels, length $3: $(last_line torch-attention)"
        return
    }
    while read -r line; do
        attention_row "${@:1:4}" "torch, $(field backend)" "$6" "$(field forward_us)" "$(field backward_us)"
    done <"$work/lines"
}

phase_attention() {
    local row words shapes=()
    say "attention, bf16, causal, with as many heads of keys: microseconds of a call, medians, beside what was predicted"
    say "$(printf '%8s %5s %6s %4s  %-20s %11s %11s %9s %9s %9s' channels heads length seqs program forward_us backward_us \
        both_ms predicted "of that")"
    for row in "${attention_rows[@]}"; do
        read -ra words <<<"$row"
        shapes+=("$(IFS=, && echo "${words[*]:0:4}")")
        attention_ours "${words[@]}"
    done
    [ -z "$emulated" ] || { say "left out PyTorch's attention: the GPU is emulated"; return; }
    keep 60 torch-attention "$python" bench/gpu/torch_attention.py "${shapes[@]}"
    for row in "${attention_rows[@]}"; do
        read -ra words <<<"$row"
        attention_of_torch "${words[@]}"
    done
}

# ---- PyTorch ----

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

