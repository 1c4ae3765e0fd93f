// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5: Yang et al., Qwen2 technical report, 2024, arXiv:2407.10671. q, k and v have
// biases.
#include "model/decoder.h"

// Defaults of transformers' Qwen2Config.
static const decoder_family family = {
    .architecture = "qwen2",
    .vocab = 151936,
    .hidden = 4096,
    .inner = 22016,
    .layers = 32,
    .heads = 32,
    .key_value_heads = 32,
    .positions = 32768,
    .qkv_bias = true,
    .layer_types = true,
};

mics_status build_qwen2(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                        mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
