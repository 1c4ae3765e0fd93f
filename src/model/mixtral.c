// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Mixtral: Jiang et al., Mixtral of experts, 2024, arXiv:2401.04088. Nothing is ever dropped.
#include "model/decoder.h"

// Defaults of transformers' MixtralConfig.
static const mixture_family experts = {
    .module = "block_sparse_moe",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .inner_key = "intermediate_size",
    .inner = 14336,
    .experts = 8,
    .chosen = 2,
    .normalised = true,
};

static const decoder_family family = {
    .architecture = "mixtral",
    .vocab = 32000,
    .hidden = 4096,
    .inner = 14336,
    .layers = 32,
    .heads = 32,
    .key_value_heads = 8,
    .positions = 4096 * 32,
    .eps = 1e-5,
    .theta = 1e6,
    .window = true,
    .experts = &experts,
};

mics_status build_mixtral(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                          mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
