// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Qwen 3: Yang et al., Qwen3 technical report, 2025, arXiv:2505.09388. Query and key heads are
// normalised.
#include "model/decoder.h"

// Defaults of transformers' Qwen3Config.
static const decoder_family family = {
    .architecture = "qwen3",
    .vocab = 151936,
    .hidden = 4096,
    .inner = 22016,
    .layers = 32,
    .heads = 32,
    .key_value_heads = 32,
    .head_dim = 128,
    .positions = 32768,
    .bias_keys = true,
    .head_norm = true,
    .layer_types = true,
};

mics_status build_qwen3(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                        mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
