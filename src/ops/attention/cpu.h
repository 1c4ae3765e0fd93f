// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the CPU's attention forward (cpu.c) and backward (cpu_backward.c) share: which tiles a tile
// meets, and how rows come into the workspace.
//
// Legend: q queries and k keys of a tile (at most TILE), D head dimension, W = D rounded up to
// whole vectors. Tiles in the workspace have a fixed row length, TILE or W, and hold 0 between the
// last row or column and the next whole vector.
#pragma once

#include "ops/attention/def.h"
#include "ops/attention/pairs.h"
#include "ops/attention/tile.h"
#include "ops/common/mask.h"
#include "ops/common/threads.h"
#include <string.h>

enum { TILE = MICS_ATTENTION_TILE };

static inline int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// What all heads of a call share.
typedef struct extent {
    int64_t T, H, D;       // H query heads
    int64_t shared;        // query heads that read one key-value head
    int64_t row, C;        // floats of a token's q, k and v, and of its y
    int64_t before, after; // token i sees j with i - before <= j <= i + after; T: no bound
} extent;

static inline extent extent_of(const mics_op_shape *shape)
{
    const mics_heads heads = shape->heads;
    const mics_op *op = shape->op;
    const int64_t reach = op->window > 0 ? mics_attention_reach(op) : shape->T;
    return (extent){.T = shape->T,
                    .H = heads.query,
                    .D = heads.dim,
                    .shared = heads.query / heads.key_value,
                    .row = mics_heads_width(heads),
                    .C = heads.query * heads.dim,
                    .before = reach,
                    .after = op->both_ways ? reach : 0};
}

// Segments of a sequence's tokens; NULL: all are of one.
static inline const int32_t *segments_of(const mics_op_call *call, int64_t b)
{
    return call->segments == NULL ? NULL : call->segments + b * call->shape.T;
}

// Where the keys and values of a query head begin in a token's row.
static inline int64_t key_of(const extent *e, int64_t h)
{
    return e->C + h / e->shared * e->D;
}
static inline int64_t value_of(const extent *e, int64_t h)
{
    return key_of(e, h) + e->C / e->shared;
}

// ---- which tiles ----

// The segments of a tile's tokens are in [lowest, highest].
typedef struct segment_span {
    int32_t lowest, highest;
} segment_span;

static inline segment_span span_of(const extent *e, const int32_t *segments_T, int64_t first)
{
    segment_span span = {segments_T[first], segments_T[first]};
    const int64_t tokens = minimum(TILE, e->T - first);
    for (int64_t t = 1; t < tokens; ++t) {
        const int32_t segment = segments_T[first + t];
        span.lowest = segment < span.lowest ? segment : span.lowest;
        span.highest = segment > span.highest ? segment : span.highest;
    }
    return span;
}

// Whether tokens of the tiles that begin at `a` and at `b` may be of one segment.
static inline bool may_meet(const extent *e, const int32_t *segments_T, int64_t a, int64_t b)
{
    if (segments_T == NULL || a == b)
        return true;
    const segment_span of_a = span_of(e, segments_T, a), of_b = span_of(e, segments_T, b);
    return of_a.lowest <= of_b.highest && of_b.lowest <= of_a.highest;
}

// Whether all tokens of both are of one segment.
static inline bool is_one_segment(const extent *e, const int32_t *segments_T, int64_t a, int64_t b)
{
    if (segments_T == NULL)
        return true;
    const segment_span of_a = span_of(e, segments_T, a), of_b = span_of(e, segments_T, b);
    return of_a.lowest == of_a.highest && of_b.lowest == of_a.lowest && of_b.highest == of_a.lowest;
}

// Tiles that begin in [begin, end).
typedef struct tile_range {
    int64_t begin, end;
} tile_range;

// From the first to the last tile that the tile at `first` meets, of those with tokens from
// `before` its first one to `after` its last one.
static inline tile_range tiles_met(const extent *e, const int32_t *segments_T, int64_t first,
                                   int64_t before, int64_t after)
{
    const int64_t last = minimum(first + TILE - 1 + after, e->T - 1);
    tile_range range = {maximum(first - before, 0) / TILE * TILE, last / TILE * TILE + TILE};
    while (!may_meet(e, segments_T, first, range.begin)) // it meets itself
        range.begin += TILE;
    while (!may_meet(e, segments_T, first, range.end - TILE))
        range.end -= TILE;
    return range;
}

// Tiles of keys that the queries from `first` on see, and of queries that see the keys from `key`
// on.
static inline tile_range key_tiles(const extent *e, const int32_t *segments_T, int64_t first)
{
    return tiles_met(e, segments_T, first, e->before, e->after);
}
static inline tile_range query_tiles(const extent *e, const int32_t *segments_T, int64_t key)
{
    return tiles_met(e, segments_T, key, e->after, e->before);
}

// Whether of a tile's scores the half beyond the diagonal is left out.
static inline bool is_diagonal(const extent *e, int64_t first, int64_t key)
{
    return e->after == 0 && first == key;
}

/* mics_op_kernels.backward, in cpu_backward.c. */
void MICS_OP(attention_backward)(const mics_op_call *call);

// ---- pairs ----

// NULL: multiplies in fp32. Pairs want tiles in whole vectors of 16.
static inline const mics_attention_pairs *pairs_for(const extent *e)
{
    return MICS_ELEM_FP32 || MICS_LANES != 16 ? NULL : mics_attention_pairs_for(e->D);
}

// A tile's place, where it holds pairs.
static inline uint32_t *as_pairs(float *place)
{
    return (uint32_t *)(void *)place;
}

// Rows of bf16 numbers where they lie, paired along D.
static inline mics_paired rows_of(const mics_elem *rows, int64_t stride)
{
    return (mics_paired){rows, stride, 2};
}

// The transpose of pairs (rows / 2, TILE) that lie down the rows.
static inline mics_paired turned(const float *pairs_TT)
{
    return (mics_paired){pairs_TT, 2, 2 * TILE};
}

// ---- rows ----

static inline int64_t thread_floats(const extent *e)
{
    return MICS_ELEM_FP32 ? mics_attention_workspace(e->D)
                          : mics_attention_workspace_bf16(e->T, e->shared, e->D);
}

static inline int64_t whole_vectors(int64_t elems)
{
    return (elems + MICS_LANES - 1) / MICS_LANES * MICS_LANES;
}

// Rows of a head lie far apart, so the CPU does not fetch the next one by itself. Fetching
// so many rows ahead took 6 % off the backward kernel at T = 256, D = 64 (Xeon of 2023, one
// thread).
enum { AHEAD_ROWS = 8, LINE_ELEMS = 64 / sizeof(mics_elem) };

// dst_D = src_D.
static inline void widen_row(float *dst_D, const mics_elem *src_D, int64_t D)
{
#pragma omp simd
    for (int64_t d = 0; d < D; ++d)
        dst_D[d] = mics_load(src_D[d]);
}

// dst (rows, W) = src (rows, D), padded with 0 to whole vectors both ways.
static inline void pack(float *dst, int64_t W, const mics_elem *src, int64_t stride, int64_t rows,
                        int64_t D)
{
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t d = 0; d < D && row + AHEAD_ROWS < rows; d += LINE_ELEMS)
            __builtin_prefetch(src + (row + AHEAD_ROWS) * stride + d);
        widen_row(dst + row * W, src + row * stride, D);
        memset(dst + row * W + D, 0, (size_t)(W - D) * sizeof *dst);
    }
    memset(dst + rows * W, 0, (size_t)((whole_vectors(rows) - rows) * W) * sizeof *dst);
}
