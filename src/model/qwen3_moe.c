// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Qwen 3's mixtures of experts: Yang et al., Qwen3 technical report, 2025, arXiv:2505.09388. Layers
// may be dense.
#include "model/decoder.h"

// Defaults of transformers' Qwen3MoeConfig.
static const mixture_family experts = {
    .module = "mlp",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .inner_key = "moe_intermediate_size",
    .inner = 768,
    .experts = 128,
    .chosen = 8,
    .some_layers = true,
};

static const decoder_family family = {
    .architecture = "qwen3_moe",
    .vocab = 151936,
    .hidden = 2048,
    .inner = 6144,
    .layers = 24,
    .heads = 32,
    .key_value_heads = 4,
    .positions = 32768,
    .bias_keys = true,
    .head_norm = true,
    .no_window = true,
    .experts = &experts,
};

mics_status build_qwen3_moe(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                            mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
