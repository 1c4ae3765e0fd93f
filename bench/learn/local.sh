#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/learn/local.sh [OUT]     what local steps cost in learning
#
# Trains a GPT-2 of 3 million parameters on 2 million tokens, 1024 a step, with local steps and without, and one of 13
# million; prints the table of validation losses at equal tokens. Islands are single ranks, threads of one process. The
# text is this repository's own documents and sources, each read once; every twentieth file is held out. OUT (runs/learn)
# keeps it, and a line a run in OUT/results: what is there is not run again, so a bench that was stopped goes on, and a
# line that is removed is run anew. The most telling runs come first. In bf16 a run takes some 300 seconds of
# a core with AdamW where it computes in AVX512_BF16, and several times that with Muon, whose islands make all matrices
# orthogonal each.
#
#   MICS=build/mics
#   STEPS=2000          of a run
#   TABLE=1             prints the table of what is there, and runs nothing
set -euo pipefail
cd "$(dirname "$0")/../.."
mics=${MICS:-build/mics}
out=${1:-runs/learn}
steps=${STEPS:-2000}
mkdir -p "$out"
out=$(cd "$out" && pwd)

[ -x "$mics" ] || { echo "no program at $mics; build first: make" >&2; exit 1; }

# "MODEL OPTIMIZER ISLANDS EVERY DTYPE FRAGMENTS OVERLAP SEED"; one island is synchronous training. Some come twice.
cases() {
    local seed
    echo "3m AdamW 1 0 fp32 1 0 1"
    echo "3m AdamW 4 30 fp32 1 0 1"
    echo "3m AdamW 4 30 int4 1 0 1"
    echo "3m AdamW 4 30 int8 2 2 1"
    echo "3m AdamW 8 30 fp32 1 0 1"
    echo "3m AdamW 4 100 fp32 1 0 1"
    echo "3m Muon 1 0 fp32 1 0 1"
    echo "3m Muon 4 30 fp32 1 0 1"
    echo "13m AdamW 1 0 fp32 1 0 1"
    echo "13m AdamW 4 30 fp32 1 0 1"
    for seed in 2 3; do
        echo "3m AdamW 1 0 fp32 1 0 $seed"
        echo "3m AdamW 4 30 fp32 1 0 $seed"
        echo "3m AdamW 4 30 int8 2 2 $seed"
    done
    grid AdamW
    for seed in 2 3; do
        echo "3m Muon 1 0 fp32 1 0 $seed"
        echo "3m Muon 4 30 fp32 1 0 $seed"
    done
    grid Muon
}

grid() { # OPTIMIZER
    local islands every dtype
    for dtype in fp32 int4; do
        for islands in 4 2 8; do
            for every in 30 10 100; do
                echo "3m $1 $islands $every $dtype 1 0 1"
            done
        done
    done
}

# The text stays as it was when the first run began.
make_text() {
    [ ! -s "$out/validation.txt" ] || return 0
    local files
    mapfile -t files < <(git ls-files 'docs/*.md' 'src/*.c' 'src/*.h' | LC_ALL=C sort)
    printf '%s\n' "${files[@]}" | awk 'NR % 20' | xargs cat >"$out/train.txt"
    printf '%s\n' "${files[@]}" | awk 'NR % 20 == 0' | xargs cat >"$out/validation.new"
    mv "$out/validation.new" "$out/validation.txt"
}

# Trains one case; leaves metrics.jsonl in $out/run.
train() { # MODEL OPTIMIZER ISLANDS EVERY DTYPE FRAGMENTS OVERLAP SEED
    local ranks=$(($3 > 1 ? $3 : 2)) settings=()
    [ "$2" = AdamW ] || settings+=(--set optimizer.type="$2" --set optimizer.params.adjust_lr_fn=match_rms_adamw)
    [ "$3" = 1 ] || settings+=(--set "outer={\"every\": $4, \"ranks\": 1, \"dtype\": \"$5\", \"fragments\": $6, \
\"overlap_steps\": $7}")
    rm -rf "$out/run"
    "$mics" train bench/learn/local.json --out "$out/run" --resume none --ranks "$ranks" --steps "$steps" \
        --set model.config="bench/cloud/gpt2-$1.json" --set "data.train=[\"$out/train.txt\"]" \
        --set "data.validation=[\"$out/validation.txt\"]" --set run.seed="$8" --set sharding.params=1 \
        --set scheduler.params.total_num_steps="$steps" "${settings[@]}" >"$out/run.log" 2>&1 </dev/null
}

# A run's line: "CASE: VALIDATION TRAINING SECONDS", where TRAINING is the mean of the last twentieth of the steps, or what
# ended it. A run that is stopped leaves none.
measure() { # CASE
    local began=$SECONDS status=0
    # shellcheck disable=SC2086 # words
    train $1 || status=$?
    case $status in
    0) awk -v steps="$steps" -v seconds=$((SECONDS - began)) -v what="$1" '
            function value(key,    at) {
                at = index($0, "\"" key "\": ")
                return substr($0, at + length(key) + 4) + 0
            }
            /"validation_loss": / { validation = value("validation_loss") }
            /"step_ms": / && value("step") > steps * 0.95 { sum += value("loss"); count++ }
            END { printf "%s: %.4f %.4f %d\n", what, validation, sum / count, seconds }' "$out/run/metrics.jsonl" ;;
    1) echo "$1: failed: $(tail -n 1 "$out/run.log")" ;;
    *) tail -n 5 "$out/run.log" >&2 && return "$status" ;;
    esac >>"$out/results"
    rm -rf "$out/run"
}

# Each setting beside synchronous training with the same seeds.
print_table() {
    echo "| model | optimizer | islands | H | dtype | fragments, overlap | seeds | validation loss | beside synchronous |"
    echo "|---|---|---|---|---|---|---|---|---|"
    LC_ALL=C sort -k2,2 -k1,1r -k3,3n -k4,4n -k5,5 -k6,6n "$out/results" | awk '
        /^#/ { next }
        {
            seed = $8 + 0
            key = "| " $1 " | " $2 " | " $3 " | " ($3 > 1 ? $4 : "") " | " ($3 > 1 ? $5 : "") " | " ($3 > 1 ? $6 ", " $7 : "")
            if (!(key in seeds)) { keys[++count] = key; of[key] = $1 " " $2 }
            if ($9 == "failed:") { failed[key] = 1; seeds[key] += 0; next }
            seeds[key]++
            sum[key] += $9
            if ($3 == 1)
                alone[$1 " " $2 " " seed] = $9
            seed_of[key, seeds[key]] = seed
            loss_of[key, seeds[key]] = $9
        }
        END {
            for (c = 1; c <= count; c++) {
                key = keys[c]
                beside = ""
                off = compared = 0
                for (i = 1; i <= seeds[key]; i++)
                    if ((of[key] " " seed_of[key, i]) in alone) {
                        one = 100 * (loss_of[key, i] / alone[of[key] " " seed_of[key, i]] - 1)
                        least = !compared || one < least ? one : least
                        most = !compared || one > most ? one : most
                        off += one
                        compared++
                    }
                if (compared)
                    beside = sprintf("%+.2f %%", off / compared)
                if (compared > 1)
                    beside = beside sprintf(" (%+.2f to %+.2f)", least, most)
                loss = seeds[key] ? sprintf("%.4f", sum[key] / seeds[key]) : ""
                print key " | " seeds[key] " | " loss (key in failed ? " failed" : "") " | " beside " |"
            }
        }'
}

[ -s "$out/results" ] || echo "# steps $steps" >"$out/results"
[ "$(head -n 1 "$out/results")" = "# steps $steps" ] ||
    { echo "$out/results is of other settings: $(head -n 1 "$out/results"); remove it" >&2 && exit 1; }
if [ -z "${TABLE:-}" ]; then
    make_text
    while IFS= read -r case; do
        grep -q "^$case: " "$out/results" || measure "$case"
    done < <(cases)
fi
print_table
