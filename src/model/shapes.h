// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a plan needs to know of a config.json. Private to this module.
#ifndef MICS_MODEL_SHAPES_H
#define MICS_MODEL_SHAPES_H

#include "model/builders.h"

typedef struct shapes {
    int64_t layers, hidden, vocab, positions, inner;
    mics_heads heads;
    bool gated, tied;
    int64_t experts, chosen, expert_inner, shared_inner, dense_layers;
    int64_t query_rank, pair_rank, rotary_dim, plain_dim, value_dim; // latent attention; 0: none
    bool both_ways, learned_positions;
    // Tokens that a layer's attention sees, where it has a window. Which layers have: said of each, or
    // all but each full_every-th, of which the first is first_full; full_every 0: all of them.
    int64_t window, full_every, first_full;
    const mics_json_value *layer_types; // NULL: not said
} shapes;

/* Reads them, under whichever keys they stand; refuses what gives another model.
 *
 * Needs:   s of zeros. It borrows from config.
 * Returns: as mics_model_from_shapes.
 */
mics_status shapes_read(const mics_json *config, shapes *s);

/* Tokens that a layer's attention sees; 0: all. */
int64_t shapes_window(const shapes *s, int64_t layer);

/* The family; NULL: not said. */
const char *shapes_type(const mics_json *config);

#endif
