// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#ifndef MICS_OPS_ATTENTION_DEF_H
#define MICS_OPS_ATTENTION_DEF_H

#include "mics/op.h"

// The CPU's kernels work in square tiles.
enum { MICS_ATTENTION_TILE = 64 };

// Tokens of a prompt whose scores are held at once, in generation.
enum { MICS_ATTENTION_PROMPT_ROWS = 32 };

/* How many tokens before it a token with a window sees, and both ways also after it.
 *
 * Needs:   a window. */
static inline int64_t mics_attention_reach(const mics_op *op)
{
    return op->both_ways ? op->window / 2 : op->window - 1;
}

/* Floats of workspace that they need a thread, for head dimension D: two tiles of scores, eight of
 * D columns rounded up to the widest vector, and a few rows. */
static inline int64_t mics_attention_workspace(int64_t D)
{
    return (int64_t)MICS_ATTENTION_TILE * (2 * MICS_ATTENTION_TILE + 8 * ((D + 15) / 16 * 16) + 4);
}

/* The same of the kernels in bf16, which also sum queries' gradients over T tokens, of the query
 * heads that share a key-value head. */
static inline int64_t mics_attention_workspace_bf16(int64_t T, int64_t shared, int64_t D)
{
    return mics_attention_workspace(D) + shared * T * ((D + 15) / 16 * 16);
}

#endif
