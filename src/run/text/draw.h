// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Drawing of a token from logits: a pure function of logits, settings, seed and the token's number.
#pragma once

#include "mics/memory.h"
#include "mics/run.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct run_candidate {
    float logit;
    int32_t token;
} run_candidate;

// Space for drawing from tokens 0 ... vocab - 1.
typedef struct run_drawer {
    const mics_sampling *sampling; // borrowed
    int32_t vocab;
    int32_t count;             // of tokens that are drawn from, at most
    run_candidate *candidates; // (count), the likeliest, where these are not all tokens
    double *weights;           // (count)
    float *penalized;          // (vocab) logits with a repetition penalty; NULL: there is none
} run_drawer;

/* Makes the space. Needs vocab >= 1.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: run_drawer_fini, also after a failure.
 */
mics_status run_drawer_init(run_drawer *drawer, mics_memory *memory, const mics_sampling *sampling,
                            int32_t vocab);

/* Frees; a zeroed drawer is allowed. */
void run_drawer_fini(run_drawer *drawer, mics_memory *memory);

/* Draws token number `index` of a text. At temperature 0: the likeliest, of equal ones that of the
 * smallest id. Else by the softmax of logits / temperature: of the top_k likeliest, most likely
 * first and equal ones by id; of all tokens, by id. Of these top_p and then min_p keep some, by
 * their shares of the softmax. Before all that the penalty makes seen tokens less likely.
 *
 * Shapes:  logits: (vocab); seen: (vocab) whether a token is in the text so far; NULL: none is.
 * Returns: the token, below vocab.
 * Source:  top-p: arXiv:1904.09751; min-p: arXiv:2407.01082; penalty: arXiv:1909.05858.
 */
int32_t run_draw(const run_drawer *drawer, const float *logits, const bool *seen, uint64_t seed,
                 int64_t index);
