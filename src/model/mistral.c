// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Mistral: Jiang et al., Mistral 7B, 2023, arXiv:2310.06825. Its attention may see a window.
#include "model/decoder.h"

// Defaults of transformers' MistralConfig.
static const decoder_family family = {
    .architecture = "mistral",
    .vocab = 32000,
    .hidden = 4096,
    .inner = 14336,
    .layers = 32,
    .heads = 32,
    .key_value_heads = 8,
    .positions = 4096 * 32,
    .window = true,
};

mics_status build_mistral(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                          mics_model **model_out)
{
    return decoder_build(memory, reader, &family, ignore_dropout, model_out);
}
