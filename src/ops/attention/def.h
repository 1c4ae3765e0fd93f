// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#pragma once

#include "ops/common/def.h"

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

// ---- cuDNN ----
//
// cuDNN's flash attention adds up queries' gradients by atomics, or, always in one order, out of the
// scores' gradients, which it then keeps: 2 bytes for each query and key of each head. Ours is the
// latter, and takes some heads of some sequences at a time, so that they stay below a bound.

enum {
    MICS_CUDNN_MAX_DIM = 128,        // of a head
    MICS_CUDNN_TILE = 128,           // both sides of the scores are rounded up to it
    MICS_CUDNN_SMALL_BYTES = 4 << 10 // besides, in either pass; 256 in version 9.19
};
// Of the scores' gradients, but for those of one key-value head. Tests have a plugin with less, so
// that small shapes have chunks too.
#ifndef MICS_CUDNN_SCORES_BYTES
#define MICS_CUDNN_SCORES_BYTES (INT64_C(512) << 20)
#endif

/* mics_op_def.library_lacks. */
static inline const char *mics_cudnn_lacks(const mics_op_shape *s)
{
    if (s->op->dropout > 0)
        return "attention has dropout, which cuDNN draws by other masks; 0 works (model.dropout)";
    if (s->op->segments)
        return "attention stays within documents, which cuDNN does not see; data.document_mask "
               "false works";
    if (s->op->window > 0 && s->op->window < s->T)
        return "attention has a window, which is not built for cuDNN; a sequence within the window "
               "works";
    if (s->accelerator_bytes != 2)
        return "attention computes in fp32, which cuDNN's does not; run.precision bf16 or fp16 "
               "works";
    if (s->heads.dim > MICS_CUDNN_MAX_DIM || s->heads.dim % 8 != 0)
        return "cuDNN's attention takes heads of at most 128 numbers, in multiples of 8; this "
               "model "
               "has others";
    return NULL;
}

// What one call of cuDNN computes: `heads` key-value heads, and the query heads that read them, of
// `sequences` sequences. Both divide all of them.
typedef struct mics_cudnn_chunk {
    int64_t sequences, heads;
} mics_cudnn_chunk;

static inline int64_t mics_cudnn_round_up(int64_t value, int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

// The largest divisor of `count` that is at most `most`, or 1.
static inline int64_t mics_cudnn_divisor(int64_t count, int64_t most)
{
    int64_t divisor = mics_larger(mics_smaller(count, most), 1);
    while (count % divisor != 0)
        divisor--;
    return divisor;
}

static inline int64_t mics_cudnn_scores_bytes(int64_t T)
{
    const int64_t rows = mics_cudnn_round_up(T, MICS_CUDNN_TILE);
    return 2 * rows * rows;
}

/* The largest chunk of backward whose scores stay below the bound; at least one key-value head. */
static inline mics_cudnn_chunk mics_cudnn_chunk_of(int64_t B, int64_t T, mics_heads heads)
{
    const int64_t one = heads.query / heads.key_value * mics_cudnn_scores_bytes(T);
    const int64_t most = MICS_CUDNN_SCORES_BYTES / one;
    const int64_t fits = mics_cudnn_divisor(heads.key_value, most);
    return (mics_cudnn_chunk){
        .sequences = fits < heads.key_value ? 1 : mics_cudnn_divisor(B, most / heads.key_value),
        .heads = fits};
}

/* Bytes of the sums of dy * y of a chunk's queries, which stand before cuDNN's own workspace. */
static inline int64_t mics_cudnn_sums_bytes(int64_t T, mics_heads heads, mics_cudnn_chunk chunk)
{
    const int64_t queries = chunk.sequences * chunk.heads * (heads.query / heads.key_value) * T;
    return mics_cudnn_round_up(queries * (int64_t)sizeof(float), 256);
}

/* The most that cuDNN may ask for backward of a chunk: the scores' gradients, and gradients of keys
 * and values for each query head where several share them.
 *
 * Source:  what cuDNN 9.19 asks for on compute capability 8.0, 9.0, 10.0 and 12.0. */
static inline int64_t mics_cudnn_bytes(int64_t T, mics_heads heads, mics_cudnn_chunk chunk)
{
    const int64_t shared = heads.query / heads.key_value;
    const int64_t count = chunk.sequences * chunk.heads * shared;
    const int64_t gradients = mics_cudnn_round_up(2 * count * T * heads.dim, 256);
    return count * mics_cudnn_scores_bytes(T) + (shared > 1 ? 2 * gradients : 0) +
           MICS_CUDNN_SMALL_BYTES;
}
