#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/rivals.sh [NODES]     plans of public shapes beside Megatron's row, as a table
#
# Eleven shapes on NODES (64) nodes of p5.48xlarge and of p4d.24xlarge, sequences of 4096 tokens, some 4 million
# tokens a step: seconds of the best plan, what it is, and seconds of megatron's row. Takes under a minute.
#
#   MICS=build/mics    the program
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
mics=${MICS:-$root/build/mics} nodes=${1:-64}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

shape() { # NAME TYPE VOCAB HIDDEN INTERMEDIATE LAYERS HEADS KV-HEADS [MORE]
    printf '{"model_type": "%s", "vocab_size": %s, "hidden_size": %s, "intermediate_size": %s, "num_hidden_layers": %s,
 "num_attention_heads": %s, "num_key_value_heads": %s, "max_position_embeddings": 131072%s}\n' "${@:2:7}" "${9:+, $9}" \
        >"$work/$1.json"
    names+=("$1")
}
names=()
untied='"tie_word_embeddings": false'
shape Llama-3-8B llama 128256 4096 14336 32 32 8 "$untied"
shape Llama-3-70B llama 128256 8192 28672 80 64 8 "$untied"
shape Llama-3-405B llama 128256 16384 53248 126 128 8 "$untied"
shape Qwen3-32B qwen3 151936 5120 25600 64 64 8 "$untied, \"head_dim\": 128"
shape Qwen3-235B qwen3_moe 151936 4096 12288 94 64 4 "$untied, \"head_dim\": 128, \"moe_intermediate_size\": 1536,
 \"num_experts\": 128, \"num_experts_per_tok\": 8, \"norm_topk_prob\": true, \"decoder_sparse_step\": 1, \"mlp_only_layers\": []"
shape Mixtral-8x7B mixtral 32000 4096 14336 32 32 8 "$untied, \"num_local_experts\": 8, \"num_experts_per_tok\": 2"
shape Mixtral-8x22B mixtral 32768 6144 16384 56 48 8 "$untied, \"num_local_experts\": 8, \"num_experts_per_tok\": 2"
shape DeepSeek-V3 deepseek_v3 129280 7168 18432 61 128 128 "$untied, \"moe_intermediate_size\": 2048,
 \"n_routed_experts\": 256, \"n_shared_experts\": 1, \"num_experts_per_tok\": 8, \"first_k_dense_replace\": 3,
 \"moe_layer_freq\": 1, \"q_lora_rank\": 1536, \"kv_lora_rank\": 512, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64,
 \"v_head_dim\": 128, \"n_group\": 8, \"topk_group\": 4, \"norm_topk_prob\": true"
shape gpt-oss-120b gpt_oss 201088 2880 2880 36 64 8 "$untied, \"head_dim\": 64, \"num_local_experts\": 128,
 \"num_experts_per_tok\": 4, \"sliding_window\": 128, \"layer_types\": [$(printf '"sliding_attention", "full_attention", %.0s' {1..17})
 \"sliding_attention\", \"full_attention\"]"
shape Gemma-2-27B gemma2 256000 4608 36864 46 32 16 '"head_dim": 128, "sliding_window": 4096'
shape OLMo-2-32B olmo2 100352 5120 27648 64 40 8 "$untied"

value() { # KEY LINE
    sed -n 's/.*"'"$1"'": "\{0,1\}\([^",}]*\).*/\1/p' <<<"$2"
}
parts() { # LINE: what the plan is
    local s r o
    r=$(value recompute "$1") o=$(value offload_units "$1")
    s=$(sed -n 's/.*"name": "\([^"]*\)".*/\1/p' <<<"$1")
    printf '%s%s, %s x %s' "${s//|/\\|}" \
        "$([ "$(value early_gathers "$1")" != true ] || echo ', early gathers')" "$(value micro_batch "$1")" \
        "$(value accumulation "$1")"
    [ "$r" = false ] || printf ', recomputed%s' "$([ "$r" = true ] || echo " $r")"
    [ -z "$o" ] || printf ', %s in host memory' "$o"
}
for cluster in p5.48xlarge p4d.24xlarge; do
    printf '\n| %s:%s | mics s | plan | Megatron s | its cut | mics / Megatron |\n|---|---|---|---|---|---|\n' "$cluster" "$nodes"
    for name in "${names[@]}"; do
        if ! "$mics" plan "$work/$name.json" --cluster "$cluster:$nodes" --set data.sequence_length=4096 --quiet --json \
            >"$work/out" 2>"$work/err"; then
            echo "| $name | | $(sed 's/.*fits nowhere/fits nowhere/; s/;.*//; 1q' "$work/err") | | | |"
            continue
        fi
        best=$(awk '/"plans": \[/ { plans = 1 } plans && /"name"/ { print; exit }' "$work/out")
        rival=$(grep -m1 '"megatron": {' "$work/out")
        awk -v name="$name" -v a="$(value step_ms "$best")" -v b="$(value step_ms "$rival")" -v what="$(parts "$best" | sed 's/\\/\\\\/g')" \
            -v cut="$(value name "$rival")" -v fits="$(value fits "$rival")" 'BEGIN {
            sub(/^megatron /, "", cut)
            if (fits != "true") printf "| %s | %.2f | %s | does not fit | | |\n", name, a / 1000, what
            else printf "| %s | %.2f | %s | %.2f | %s | %.2f |\n", name, a / 1000, what, b / 1000, cut, a / b }'
    done
done
