// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Drawing of a token from logits: a pure function of logits, settings, seed and the token's number.
#ifndef MICS_RUN_DRAW_H
#define MICS_RUN_DRAW_H

#include "mics/memory.h"
#include "mics/run.h"
#include "mics/status.h"
#include <stdint.h>

typedef struct run_candidate {
    float logit;
    int32_t token;
} run_candidate;

// Space for drawing from tokens 0 ... vocab - 1.
typedef struct run_drawer {
    const mics_sampling *sampling; // borrowed
    int32_t vocab;
    int32_t count;             // of tokens that are drawn from
    run_candidate *candidates; // (count), the likeliest, where these are not all tokens
    double *weights;           // (count)
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
 * first and equal ones by id; of all tokens, by id.
 *
 * Shapes:  logits: (vocab).
 * Returns: the token, below vocab.
 */
int32_t run_draw(const run_drawer *drawer, const float *logits, uint64_t seed, int64_t index);

#endif
