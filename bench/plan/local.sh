#!/bin/sh
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/local.sh     plans at 25 Gb/s: synchronous, with local steps, and Megatron's row, as a table
#
# Llama 3 8B on 4 and 70B on 8 nodes of 8 A100-SXM4-80GB, sequences of 4096 tokens, 0.5 and 4 million tokens a step.
# Takes under a minute; a plan that is in RESULTS is not made again.
#
#   MICS=build/mics   CLUSTER=a100-sxm-8-25g   RESULTS=a folder of its own, which is removed
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
mics=${MICS:-$root/build/mics} cluster=${CLUSTER:-a100-sxm-8-25g}
results=${RESULTS:-}
if [ -z "$results" ]; then
    results=$(mktemp -d)
    trap 'rm -rf "$results"' EXIT
fi
mkdir -p "$results"

shape() { # NAME HIDDEN INTERMEDIATE LAYERS HEADS
    cat >"$results/$1.json" <<END
{"model_type": "llama", "vocab_size": 128256, "hidden_size": $2, "intermediate_size": $3, "num_hidden_layers": $4,
 "num_attention_heads": $5, "num_key_value_heads": 8, "max_position_embeddings": 131072, "tie_word_embeddings": false}
END
}
value() { # KEY LINE: the first
    printf '%s\n' "$2" | sed 's/.*\("'"$1"'": \)/\1/; s/^"[^"]*": "\{0,1\}\([^",}]*\).*/\1/'
}
parts() { # LINE: what the plan is
    recompute=$(value recompute "$1") offload=''
    case $1 in *'"offload_units"'*) offload=", $(value offload_units "$1") units in host memory" ;; esac
    case $recompute in true) recompute=', recomputed' ;; false) recompute='' ;; *) recompute=", recomputed $recompute" ;; esac
    printf '%s, %s x %s%s%s' "$(printf '%s\n' "$1" | sed 's/.*{"name": "\([^"]*\)".*/\1/; s/|/\\|/g')" \
        "$(value micro_batch "$1")" "$(value accumulation "$1")" "$recompute" "$offload"
}
seconds() { # LINE
    awk -v ms="$(value step_ms "$1")" 'BEGIN { printf "%.2f", ms / 1000 }'
}
speedup() { # OF LINE: how many times as fast
    awk -v of="$(value step_ms "$1")" -v ms="$(value step_ms "$2")" 'BEGIN { printf "%.2f", of / ms }'
}
gib() { # BYTES
    awk -v bytes="$1" 'BEGIN { printf "%.1f", bytes / 1024 / 1024 / 1024 }'
}
table() { # NAME NODES BATCH WORDS
    out=$results/$1.$3.out
    if [ ! -s "$out" ]; then
        "$mics" plan "$results/$1.json" --cluster "$cluster:$2" --set data.sequence_length=4096 \
            --set train_batch_size="$3" --local --top 1 --quiet --json >"$out.new"
        mv "$out.new" "$out"
    fi
    best=$(sed -n '/^  "plans": \[/{n;p;}' "$out")
    printf '\n%s tokens a step, %s nodes of %s:\n\n' "$4" "$2" "$cluster"
    printf '| | s a step | times as fast | plan | outer | meetings, %% of a step | GiB inter-node a period | GiB a rank |\n'
    printf '|---|---|---|---|---|---|---|---|\n'
    printf '| synchronous | %s | 1 | %s | | | | %s |\n' "$(seconds "$best")" "$(parts "$best")" \
        "$(gib "$(value memory_bytes "$best")")"
    sed -n '/^  "local_steps"/,$p' "$out" | grep '"outer": ' | while read -r row; do
        printf '| H = %s | %s | %s | %s | R = %s, overlap %s, %s | %s | %s | %s |\n' "$(value every "$row")" \
            "$(seconds "$row")" "$(speedup "$best" "$row")" "$(parts "$row")" "$(value ranks "$row")" \
            "$(value overlap_steps "$row")" "$(value dtype "$row")" \
            "$(awk -v a="$(value meeting_ms "$row")" -v b="$(value step_ms "$row")" 'BEGIN { printf "%.2f", 100 * a / b }')" \
            "$(gib "$(value period_inter_bytes "$row")")" "$(gib "$(value memory_bytes "$row")")"
    done
    rival=$(grep '^    "megatron": {' "$out")
    printf '| Megatron | %s | %s | %s | | | | %s |\n' "$(seconds "$rival")" "$(speedup "$best" "$rival")" \
        "$(value name "$rival" | sed 's/^megatron //')" "$(gib "$(value memory_bytes "$rival")")"
    pays=$(sed -n 's/.*"pays_up_to_gbit_per_s": \([^,]*\),.*/\1/p' "$out")
    take=$(sed -n 's/.*"take": \([^,]*\),.*/\1/p' "$out")
    case $pays in null) pays=none ;; *) pays="up to $pays Gb/s a node" ;; esac
    printf '\nNetworks on which H = %s is 5 %% faster than synchronous plans: %s.\n' "$take" "$pays"
}

shape 8B 4096 14336 32 32
shape 70B 8192 28672 80 64
table 8B 4 128 'Llama 3 8B, 0.5 million'
table 8B 4 1024 'Llama 3 8B, 4 million'
table 70B 8 128 'Llama 3 70B, 0.5 million'
table 70B 8 1024 'Llama 3 70B, 4 million'
