// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, in place of a layer's MLP: Fedus et al., Switch transformers, 2021,
// arXiv:2101.03961. Each expert is a SwiGLU.
#pragma once

#include "model/builders.h"

// How a family spells them, and what its class of transformers has for an absent key.
typedef struct mixture_family {
    const char *module;             // below a layer: "mlp"
    const char *gate, *up, *down;   // of an expert: "gate_proj"
    const char *inner_key;          // size of an expert
    int64_t inner, experts, chosen; // defaults
    bool normalised;                // always; else "norm_topk_prob" says it
    bool some_layers;               // "decoder_sparse_step" and "mlp_only_layers"
    // A shared expert, which takes all tokens and is weighed by a sigmoid of its own: key of its
    // size, and that of an absent key. NULL: none.
    const char *shared_key;
    int64_t shared;
} mixture_family;

typedef struct mixture {
    const mixture_family *family;
    mics_experts experts;
    mics_router_spec router;
    int64_t inner;
    int64_t shared; // of the shared expert; 0: none
    int64_t every;  // of so many layers the last has experts, unless mlp_only_layers has its number
} mixture;

/* Reads the keys. Losses of the router count where output_router_logits is true, as in
 * transformers, and are of each sequence and layer; their sum is divided by the layers. */
void mixture_read(config_reader *reader, const mixture_family *family, int64_t layers,
                  mixture *mixture_out);

/* Whether layer `index` has experts. */
bool mixture_has_layer(const config_reader *reader, const mixture *of, int64_t index);

/* Adds router and experts to the newest unit. Returns: the tensor that they make. */
int32_t mixture_add(mics_model *model, const mixture *of, const char *layer, int32_t in,
                    int64_t hidden, double init_std);
