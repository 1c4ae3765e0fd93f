#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/recompute.sh     plans beside runs on this machine's CPUs, with some layers recomputed
#
# A Llama-like model of LAYERS layers, with none of them recomputed, a quarter, half, three quarters and all: one rank with
# 1 and 2 threads, and two ranks with 1 (zero3). For each of these three `mics bench` writes a cluster file first, so plans
# know this machine's kernels and links, and no step of these runs. Prints measured and planned steps, and what either says
# a step takes compared with that of the first row; then median errors. ROUNDS are alternated; steps are medians of all but
# the first of each. Exit status 1: a median is above 5 %. Some 5 minutes of 2 idle cores.
#
#   MICS=build/mics  LAYERS=8  STEPS=6  ROUNDS=3  SECONDS_EACH=15
set -euo pipefail
cd "$(dirname "$0")/../.."
mics=${MICS:-build/mics} layers=${LAYERS:-8} steps=${STEPS:-6} rounds=${ROUNDS:-3} seconds=${SECONDS_EACH:-15}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -m 1 'model name' /proc/cpuinfo

cat >"$work/model.json" <<END
{"model_type": "llama", "hidden_act": "silu", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": $layers,
 "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 512, "vocab_size": 4096,
 "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": false}
END
cat >"$work/run.json" <<END
{"model": {"config": "$work/model.json", "init": "random"},
 "data": {"train": ["examples/corpus/sonnets-*.txt"], "tokenizer": "bytes", "sequence_length": 256},
 "run": {"steps": $steps, "device": "cpu", "precision": "fp32", "validate_every": 0, "checkpoint_every": 0, "prefetch": 1},
 "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3}}
END

calibrate() { # RANKS THREADS
    "$mics" bench compute "$work/run.json" --ranks "$1" --threads "$2" --seconds "$seconds" --quiet --out "$work/$1.$2.json"
    [ "$1" = 1 ] || "$mics" bench comm --ranks "$1" --threads "$2" --seconds "$seconds" --quiet --out "$work/$1.$2.json"
}

settings() { # THREADS LAYERS
    echo "--set run.threads=$1 --set run.recompute=$([ "$2" = 0 ] && echo false || echo "$2")"
}

measure() { # RANKS THREADS LAYERS: adds a run's steps, but for the first, to a file
    rm -rf "$work/out"
    # shellcheck disable=SC2046
    "$mics" train "$work/run.json" --ranks "$1" --out "$work/out" --quiet $(settings "$2" "$3")
    sed -n 's/.*"step_ms": \([0-9.]*\),.*/\1/p' "$work/out/metrics.jsonl" | tail -n +2 >>"$work/$1.$2.$3"
}

planned() { # RANKS THREADS LAYERS: step time of the run file's own plan
    # shellcheck disable=SC2046
    "$mics" plan "$work/run.json" --cluster "$work/$1.$2.json:1" --json $(settings "$2" "$3") 2>/dev/null |
        grep '^ *"run_file"' | sed 's/.*"step_ms": \([0-9.]*\),.*/\1/'
}

median() { # FILE
    sort -n "$1" | awk '{ of[NR] = $1 } END { print (of[int((NR + 1) / 2)] + of[int(NR / 2) + 1]) / 2 }'
}

for on in "1 1" "1 2" "2 1"; do
    read -r ranks threads <<<"$on"
    calibrate "$ranks" "$threads"
    for ((round = 0; round < rounds; round++)); do
        for ((quarter = 0; quarter <= 4; quarter++)); do
            measure "$ranks" "$threads" $((quarter * layers / 4))
        done
    done
    for ((quarter = 0; quarter <= 4; quarter++)); do
        k=$((quarter * layers / 4))
        echo "$ranks $threads $k $(median "$work/$ranks.$threads.$k") $(planned "$ranks" "$threads" "$k")"
    done
done | awk '
    function spread(of, n,    i, j, t) {
        for (i = 1; i <= n; i++)
            for (j = i + 1; j <= n; j++)
                if (of[j] < of[i]) { t = of[i]; of[i] = of[j]; of[j] = t }
        return (of[int((n + 1) / 2)] + of[int(n / 2) + 1]) / 2
    }
    function far(is, of) { return is > of ? is / of - 1 : 1 - is / of }
    NR == 1 { printf "%-5s %-7s %-10s %11s %11s %8s %18s %8s\n", "ranks", "threads", "recomputed", "measured ms", "planned ms",
                  "error", "of the first row", "planned" }
    NF != 5 { print "no figures: " $0; bad = 1; next }
    $3 == 0 { measured = $4; planned = $5 }
    {
        step[++n] = far($5, $4)
        if ($3 > 0) ratio[++m] = far($5 / planned, $4 / measured)
        printf "%-5d %-7d %-10d %11.1f %11.1f %+7.1f%% %18.3f %8.3f\n", $1, $2, $3, $4, $5, 100 * ($5 / $4 - 1), $4 / measured,
            $5 / planned
    }
    END {
        if (m == 0) exit 1
        a = spread(step, n); b = spread(ratio, m)
        printf "median error of steps %.1f %%, of what they take of the first row %.1f %%\n", 100 * a, 100 * b
        exit bad || a > 0.05 || b > 0.05
    }'
