// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What Llama and its relatives have in common: RMSNorm, grouped heads with rotary embeddings, and
// SwiGLU, under the same names.
#pragma once

#include "model/builders.h"
#include "model/mixture.h"

// How a family differs: what its class of transformers has for an absent key, and what it adds.
typedef struct decoder_family {
    const char *architecture;
    // Defaults.
    int64_t vocab, hidden, inner, layers, heads, positions;
    int64_t key_value_heads; // 0: as many as query heads
    int64_t head_dim;        // 0: hidden / heads
    double eps;              // of norms; 0: 1e-6
    double theta;            // of rotary embeddings; 0: 10000
    // The family's rules.
    bool heads_divide;             // hidden, also beside "head_dim"
    bool qkv_bias;                 // of q, k and v, always
    bool qkv_bias_key;             // "qkv_bias", true where it is absent
    bool bias_keys;                // "attention_bias", of o too
    bool mlp_bias_key;             // "mlp_bias"
    bool head_norm;                // RMSNorm of each query and key head
    bool window;                   // "sliding_window" holds for all layers
    bool no_window;                // "use_sliding_window" must be false
    const mixture_family *experts; // NULL: none
    bool layer_types; // "layer_types", or "use_sliding_window" from "max_window_layers" on
} decoder_family;

/* Reads a configuration and builds the model, as the builders of builders.h do. */
mics_status decoder_build(mics_memory *memory, config_reader *reader, const decoder_family *family,
                          bool ignore_dropout, mics_model **model_out);
