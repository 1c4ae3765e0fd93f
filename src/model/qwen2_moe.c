// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Qwen 1.5's and 2's mixtures of experts: Yang et al., Qwen2 technical report, 2024,
// arXiv:2407.10671. Beside its experts a layer has a shared one. Layers may be dense.
#include "model/decoder.h"

// Defaults of transformers' Qwen2MoeConfig.
static const mixture_family experts = {
    .module = "mlp",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .inner_key = "moe_intermediate_size",
    .inner = 1408,
    .experts = 60,
    .chosen = 4,
    .some_layers = true,
    .shared_key = "shared_expert_intermediate_size",
    .shared = 5632,
};

static const decoder_family family = {
    .architecture = "qwen2_moe",
    .vocab = 151936,
    .hidden = 2048,
    .inner = 5632,
    .layers = 24,
    .heads = 16,
    .key_value_heads = 16,
    .positions = 32768,
    .qkv_bias_key = true,
    .no_window = true,
    .experts = &experts,
};

mics_status build_qwen2_moe(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                            mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
