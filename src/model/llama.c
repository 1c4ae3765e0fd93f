// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3: Grattafiori et al., The Llama 3 herd of models, 2024, arXiv:2407.21783.
#include "model/decoder.h"

// Defaults of transformers' LlamaConfig.
static const decoder_family family = {
    .architecture = "llama",
    .vocab = 32000,
    .hidden = 4096,
    .inner = 11008,
    .layers = 32,
    .heads = 32,
    .positions = 2048,
    .heads_divide = true,
    .bias_keys = true,
    .mlp_bias_key = true,
};

mics_status build_llama(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                        mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
