// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a plan needs to know of a config.json. Private to this module.
#pragma once

#include "model/builders.h"
#include "model/from_config.h"

typedef struct shapes {
    int64_t layers, hidden, vocab, positions, inner;
    mics_heads heads;
    bool gated, tied;
    int64_t experts, chosen, expert_inner, shared_inner;
    // Behind the dense ones that begin, every so many-th layer has experts.
    int64_t dense_layers, experts_every, first_experts;
    const mics_json_value *expert_list; // 0 and 1, or names, by layer; NULL: none
    int64_t query_rank, pair_rank, rotary_dim, plain_dim, value_dim; // latent attention; 0: none
    bool both_ways, learned_positions;
    int64_t first_position; // rows of the table of positions before the first token's
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

/* Whether a layer has experts. */
bool shapes_has_experts(const shapes *s, int64_t layer);

/* A key's value, also of the objects within; NULL: there is none. */
const mics_json_value *shapes_find(const mics_json *config, const char *key);

/* ---- shapes_family.c: what a family's name says ---- */

/* The family; NULL: not said. */
const char *shapes_type(const mics_json *config);
bool shapes_is(const mics_json *config, const char *type);
/* Whether the family is known; any other is taken for a decoder as Llama is one. */
bool shapes_is_known(const mics_json *config);
/* Whether it is a kind of model that cannot be planned. */
bool shapes_is_other(const mics_json *config);
/* Encoders: each token sees all others. */
bool shapes_is_encoder(const mics_json *config);
/* Each token has a learned position; with rows of the table before the first one's. */
bool shapes_has_positions(const mics_json *config);
bool shapes_pads_positions(const mics_json *config);
/* The LM head is the embedding. */
bool shapes_is_tied(const mics_json *config);
/* Feed-forward layers have three matrices, not two. */
bool shapes_is_gated(const mics_json *config);
/* What Hugging Face's class takes for a size that its config.json leaves out; else the fallback. */
int64_t shapes_default(const mics_json *config, const char *key, int64_t fallback);
