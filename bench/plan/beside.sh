#!/usr/bin/env bash
# SPDX-FileCopyrightText: The mics authors
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/plan/beside.sh [SHAPE...]     plans beside real runs on this machine, calibrated in the same session; needs root
#
# Ten shapes: GPT-2, Llama, a mixture of experts and BERT, in fp32 and bf16, on 1, 2 and 4 ranks that are threads or nodes
# of an emulated cloud with links of RATE_MBIT. For each, `mics bench --for` writes a cluster file, `mics plan` predicts the
# step of the run file, and `mics train` runs it ROUNDS times: the measured figure is the median of the rounds' medians.
# Prints both, the error and the least and most of the rounds; then the largest and the median error up to 2 ranks and
# at 4. Exit status 1: above 8 % up to 2 ranks, or 15 % at 4. Some 20 minutes of a machine that does nothing else.
#
#   ROUNDS=5  STEPS=12  MINUTES=0.6: of each calibration  RATE_MBIT=1000  TOKENS=128: of each of 4 sequences  HIDDEN=384
#   FORCE=1             takes calibrations that mispredict a step twofold
#   RESULTS=FILE        keeps predicted steps and rounds there, and takes those that are there
. "$(dirname "$0")/../cloud/lib.sh"
rounds=${ROUNDS:-5} steps=${STEPS:-12} minutes=${MINUTES:-0.6} rate=${RATE_MBIT:-1000} tokens=${TOKENS:-128} hidden=${HIDDEN:-384}
open_results "rounds $rounds steps $steps minutes $minutes rate $rate tokens $tokens hidden $hidden"
[ $# -gt 0 ] || set -- gpt2.fp32.1 gpt2.bf16.2 llama.bf16.1 llama.fp32.2 moe.fp32.2 moe.bf16.2x1 bert.fp32.2 bert.bf16.2x1 \
    gpt2.fp32.2x2 llama.bf16.2x2

models() {
    cat >"$work/gpt2.json" <<END
{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": $hidden, "n_head": 6, "n_layer": 6,
 "n_positions": $tokens, "vocab_size": 2048, "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0}
END
    cat >"$work/llama.json" <<END
{"model_type": "llama", "hidden_size": $hidden, "intermediate_size": $((8 * hidden / 3)), "num_hidden_layers": 6,
 "num_attention_heads": 6, "num_key_value_heads": 2, "max_position_embeddings": $tokens, "vocab_size": 2048}
END
    cat >"$work/moe.json" <<END
{"model_type": "mixtral", "hidden_size": $hidden, "intermediate_size": $hidden, "num_hidden_layers": 4,
 "num_attention_heads": 6, "num_key_value_heads": 2, "num_local_experts": 8, "num_experts_per_tok": 2,
 "max_position_embeddings": $tokens, "vocab_size": 2048, "router_aux_loss_coef": 0.01}
END
    cat >"$work/bert.json" <<END
{"model_type": "bert", "hidden_size": $hidden, "intermediate_size": $((4 * hidden)), "num_hidden_layers": 6,
 "num_attention_heads": 6, "max_position_embeddings": $tokens, "vocab_size": 2048, "pad_token_id": 0,
 "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
END
}

# Of MODEL.PRECISION.RANKS or MODEL.PRECISION.NODESxRANKS: leaves settings, sharding, per_node, and nodes (0: threads).
settle() { # SHAPE
    local model precision place
    IFS=. read -r model precision place <<<"$1"
    settings=("model.config=$work/$model.json" "run.precision=$precision" "data.sequence_length=$tokens"
        train_micro_batch_size_per_gpu=4 "run.steps=$steps")
    [ "$model" != bert ] || settings+=(data.tokenizer=tests/golden/tokenizers/bert.json)
    case $place in
    *x*) nodes=${place%x*} per_node=${place#*x} ;;
    *) nodes=0 per_node=$place ;;
    esac
    ranks=$((per_node * (nodes > 0 ? nodes : 1)))
    sharding=zero3
    [ $ranks -lt 4 ] || sharding="mics($per_node)"
    [ "$nodes" = 0 ] || up "$nodes" "${rate}mbit"
}

on_ranks() { # COMMAND...: as threads, or in the cloud
    if [ "$nodes" = 0 ]; then
        "$@" --ranks "$per_node"
    else
        "$cloud" run -r "$per_node" "$@"
    fi >"$work/log" 2>&1 || { tail -n 5 "$work/log" >&2 && return 1; }
}

say() { # WORDS...
    printf 'after %d:%02d: %s\n' $((SECONDS / 60)) $((SECONDS % 60)) "$*" >&2
}

predict() { # SHAPE: calibrates, and prints the step that is planned, ms
    local sets=() setting
    say "$1: mics bench"
    for setting in "${settings[@]}"; do
        sets+=(--set "$setting")
    done
    rm -f "$work/cluster.json"
    on_ranks "$mics" bench --for bench/cloud/run.json "${sets[@]}" --threads 1 --minutes "$minutes" ${FORCE:+--force} --out "$work/cluster.json" ||
        return 1
    [ -z "$results" ] || cp "$work/cluster.json" "$results.$1.json"
    # shellcheck disable=SC2046
    "$mics" plan bench/cloud/run.json --cluster "$work/cluster.json:$((nodes > 0 ? nodes : 1))" --json "${sets[@]}" \
        $(settings_of "$sharding") --set run.device=cpu --set gradient_accumulation_steps=2 2>"$work/log" |
        sed -n 's/^ *"run_file".*"step_ms": \([0-9.]*\),.*/\1/p'
}

measure() { # SHAPE ROUND
    say "$1: round $2 of $rounds"
    command_for run "$sharding" 2 "${settings[@]}" || return 1
    on_ranks "${command[@]}" && median run step_ms
}

models
SECONDS=0
printf '%-16s %12s %12s %8s %24s\n' shape "planned ms" "measured ms" error "rounds, ms"
for shape in "$@"; do
    settle "$shape"
    planned=$(case_row "$shape" predict "$shape")
    for round in $(seq "$rounds"); do
        case_row "$shape $round" measure "$shape" "$round"
    done >"$work/rounds"
    echo "$shape $ranks $planned $(spread <"$work/rounds")" | tee -a "$work/cases" |
        awk 'NF == 6 { printf "%-16s %12.1f %12.1f %+7.1f%% %12.1f to %8.1f\n", $1, $3, $4, 100 * ($3 / $4 - 1), $5, $6 }'
done
awk '
    function say(what, of, n,    i, j, t) {
        for (i = 1; i <= n; i++)
            for (j = i + 1; j <= n; j++)
                if (of[j] < of[i]) { t = of[i]; of[i] = of[j]; of[j] = t }
        if (n)
            printf "%s: %d shapes, error at most %.1f %%, median %.1f %%\n", what, n, of[n], (of[int((n + 1) / 2)] + of[int(n / 2) + 1]) / 2
    }
    NF != 6 { print "no figures: " $0; bad = 1; next }
    {
        error = 100 * ($3 / $4 - 1)
        if (error < 0) error = -error
        if ($2 <= 2) few[++n] = error; else many[++m] = error
    }
    END {
        say("up to 2 ranks", few, n)
        say("at 4 ranks", many, m)
        exit bad || (n && few[n] > 8) || (m && many[m] > 15)
    }' "$work/cases"
