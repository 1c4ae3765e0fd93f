// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Self-attention forward by tiles of TILE queries x TILE keys, as FlashAttention (Dao et al., 2022,
// arXiv:2205.14135, algorithms 1 and 4). Only tiles that some query sees are computed: on or below
// the diagonal, unless it sees both ways; in its window; of its segment. Query heads that share a
// key-value head read the same rows.
#include "ops/attention/cpu.h"
#include "ops/common/decode.h"
#include "ops/common/vector_math.h"
#include <math.h>

// One thread's tiles. Scores are kept transposed, (keys, queries), so that maxima and sums over
// keys run down whole vectors of queries.
typedef struct forward_space {
    const mics_attention_pairs *pairs; // NULL: multiplies in fp32
    float scale;                       // of the scores: 1/sqrt(D), or 1 where queries have it
    float *q_WT;                       // (W, TILE), scaled by 1/sqrt(D); or pairs, unscaled
    float *v_TW;                       // (TILE, W), or its pairs
    float *y_TW;                       // (TILE, W), not yet divided by the sum
    float *s_TT;                       // (TILE keys, TILE queries): scores, then exponentials
    float *maximum;                    // (TILE): running maximum of each query
    float *sum;                        // (TILE): running sum of e^(score - maximum)
    float *rescale;                    // (TILE): e^(old maximum - new maximum)
} forward_space;

static forward_space forward_space_at(float *workspace, const extent *e)
{
    const int64_t W = whole_vectors(e->D);
    forward_space s = {.pairs = pairs_for(e)};
    s.scale = s.pairs != NULL ? 1.0F / sqrtf((float)e->D) : 1.0F;
    s.q_WT = workspace;
    s.v_TW = s.q_WT + W * TILE;
    s.y_TW = s.v_TW + TILE * W;
    s.s_TT = s.y_TW + TILE * W;
    s.maximum = s.s_TT + TILE * TILE;
    s.sum = s.maximum + TILE;
    s.rescale = s.sum + TILE;
    return s;
}

// Columns of row k of the diagonal tile's scores, (keys, queries), that are computed: from the
// strip's first query on.
static int64_t first_column(int64_t k, bool diagonal)
{
    return diagonal ? k / STRIP * STRIP : 0;
}

// Hides keys that a query may not see: those more than `after` its own place. `distance`: from key
// to query in the tile's corner.
static void hide_future_keys(float *s_TT, int64_t keys, int64_t columns, int64_t distance,
                             int64_t after, bool diagonal)
{
    for (int64_t k = 0; k < keys; ++k) {
        const int64_t end = minimum(k - distance - after, columns);
        for (int64_t q = first_column(k, diagonal); q < end; ++q)
            s_TT[k * TILE + q] = -INFINITY;
    }
}

// And those more than `before` it.
static void hide_past_keys(float *s_TT, int64_t keys, int64_t columns, int64_t distance,
                           int64_t before)
{
    for (int64_t k = 0; k < keys; ++k)
        for (int64_t q = maximum(before + 1 + k - distance, 0); q < columns; ++q)
            s_TT[k * TILE + q] = -INFINITY;
}

// And those of other segments. of_queries and of_keys: of the tile's tokens.
static void hide_other_segments(float *s_TT, const int32_t *of_queries, int64_t queries,
                                const int32_t *of_keys, int64_t keys, bool diagonal)
{
    for (int64_t k = 0; k < keys; ++k) {
        float *s_T = s_TT + k * TILE;
        const int32_t own = of_keys[k];
#pragma omp simd
        for (int64_t q = first_column(k, diagonal); q < queries; ++q)
            s_T[q] = of_queries[q] == own ? s_T[q] : -INFINITY;
    }
}

static void hide_keys(float *s_TT, const extent *e, const int32_t *segments_T, int64_t first,
                      int64_t key)
{
    const int64_t queries = minimum(TILE, e->T - first), keys = minimum(TILE, e->T - key);
    const int64_t columns = whole_vectors(queries), distance = first - key;
    const bool diagonal = is_diagonal(e, first, key);
    if (keys - 1 - distance > e->after)
        hide_future_keys(s_TT, keys, columns, distance, e->after, diagonal);
    if (distance + queries - 1 > e->before)
        hide_past_keys(s_TT, keys, columns, distance, e->before);
    if (!is_one_segment(e, segments_T, first, key))
        hide_other_segments(s_TT, segments_T + first, queries, segments_T + key, keys, diagonal);
}

// Before the first score of a query. Not -inf: a whole tile of its scores may be hidden.
static const float LOWEST = -3e38F;

// Scores to exponentials, with the running maximum and sum brought up to date.
static void softmax_step(const forward_space *s, int64_t keys, int64_t columns, bool diagonal)
{
    const float scale = s->scale;
    float highest[TILE];
    memcpy(highest, s->maximum, sizeof highest);
    for (int64_t k = 0; k < keys; ++k) {
        const float *s_T = s->s_TT + k * TILE;
#pragma omp simd
        for (int64_t q = first_column(k, diagonal); q < columns; ++q)
            highest[q] = s_T[q] * scale > highest[q] ? s_T[q] * scale : highest[q];
    }
#pragma omp simd
    for (int64_t q = 0; q < columns; ++q) {
        s->rescale[q] = mics_exp(s->maximum[q] - highest[q]);
        s->sum[q] *= s->rescale[q];
        s->maximum[q] = highest[q];
    }
    for (int64_t k = 0; k < keys; ++k) {
        float *s_T = s->s_TT + k * TILE;
#pragma omp simd
        for (int64_t q = first_column(k, diagonal); q < columns; ++q) {
            float e = mics_exp(s_T[q] * scale - highest[q]);
            s_T[q] = e;
            s->sum[q] += e;
        }
    }
}

// Exponentials that dropout drops, to 0; their sum is of all. The queries and keys that a tile
// begins with are given; what is kept is scaled at the end.
static void drop_keys(const forward_space *s, const mics_mask *mask, int64_t first, int64_t columns,
                      int64_t key, int64_t keys, bool diagonal)
{
    uint16_t bits[MICS_MASK_BLOCK * TILE];
    for (int64_t block = 0; block < keys; block += MICS_MASK_BLOCK) {
        const int64_t begin = first_column(block, diagonal), rows = columns - begin;
        const int64_t end = minimum(keys, block + MICS_MASK_BLOCK);
        MICS_ISA_OP(mask_columns)
        (bits, TILE, mask, first + begin, rows, (key + block) / MICS_MASK_BLOCK);
        for (int64_t k = block; k < end; ++k) {
            const uint16_t *bits_T = bits + (k - block) * TILE;
            float *s_T = s->s_TT + k * TILE + begin;
#pragma omp simd
            for (int64_t q = 0; q < rows; ++q)
                s_T[q] = bits_T[q] < mask->threshold ? 0.0F : s_T[q];
        }
    }
}

static void scale_rows(float *y_TW, const float *factor_T, int64_t rows, int64_t W)
{
    for (int64_t row = 0; row < rows; ++row) {
        float *y_W = y_TW + row * W;
        const float factor = factor_T[row];
#pragma omp simd
        for (int64_t d = 0; d < W; ++d)
            y_W[d] *= factor;
    }
}

// One query head of one sequence: each pointer at its first row.
typedef struct forward_head {
    mics_elem *y;
    float *lse;
    const mics_elem *q, *k, *v;
    const int32_t *segments; // NULL: all tokens are of one
    bool drops;
    mics_mask mask; // where it drops
} forward_head;

// Keys as floats: where they lie, or, of bf16, in the place that values take after them.
static tile key_tile(const forward_space *s, const mics_elem *keys_TD, int64_t row, int64_t keys,
                     int64_t D)
{
    if (MICS_ELEM_FP32)
        return (tile){(const float *)(const void *)keys_TD, row, 1};
    const int64_t W = whole_vectors(D);
    pack(s->v_TW, W, keys_TD, row, keys, D);
    return (tile){s->v_TW, W, 1};
}

// Scores of a tile, whose keys begin at the pointer.
static void score(const forward_space *s, const mics_elem *keys_TD, const extent *e, int64_t keys,
                  int64_t columns, triangle part)
{
    if (s->pairs != NULL) {
        s->pairs->multiply(s->s_TT, TILE, rows_of(keys_TD, e->row), as_pairs(s->q_WT), TILE, keys,
                           columns, e->D, false, part);
        return;
    }
    const tile k = key_tile(s, keys_TD, e->row, keys, e->D);
    MICS_ISA_OP(tile_multiply)(s->s_TT, TILE, k, s->q_WT, TILE, keys, columns, e->D, false, part);
}

// y (+)= their exponentials times the values.
static void add_values(const forward_space *s, const mics_elem *values_TD, const extent *e,
                       int64_t queries, int64_t keys, bool add, triangle part)
{
    const int64_t W = whole_vectors(e->D);
    if (s->pairs != NULL) {
        s->pairs->round_down(s->s_TT, keys);
        s->pairs->down(as_pairs(s->v_TW), W, values_TD, e->row, keys, e->D);
        s->pairs->multiply(s->y_TW, W, turned(s->s_TT), as_pairs(s->v_TW), W, queries, W, keys, add,
                           part);
        return;
    }
    const tile p = {s->s_TT, 1, TILE};
    pack(s->v_TW, W, values_TD, e->row, keys, e->D);
    MICS_ISA_OP(tile_multiply)(s->y_TW, W, p, s->v_TW, W, queries, W, keys, add, part);
}

// One tile of keys.
static void forward_pair(const forward_space *s, const forward_head *head, const extent *e,
                         int64_t first, int64_t key, bool begins)
{
    const int64_t queries = minimum(TILE, e->T - first), columns = whole_vectors(queries);
    const int64_t keys = minimum(TILE, e->T - key);
    const bool diagonal = is_diagonal(e, first, key);
    score(s, head->k + key * e->row, e, keys, columns, diagonal ? RESULT_UPPER : WHOLE);
    hide_keys(s->s_TT, e, head->segments, first, key);
    softmax_step(s, keys, columns, diagonal);
    if (head->drops)
        drop_keys(s, &head->mask, first, columns, key, keys, diagonal);
    if (!begins)
        scale_rows(s->y_TW, s->rescale, queries, whole_vectors(e->D));
    add_values(s, head->v + key * e->row, e, queries, keys, !begins,
               diagonal ? FACTOR_LOWER : WHOLE);
}

static void forward_tile(const forward_space *s, const forward_head *head, const extent *e,
                         int64_t first)
{
    const int64_t D = e->D, row = e->row, W = whole_vectors(D);
    const int64_t queries = minimum(TILE, e->T - first);
    const tile_range range = key_tiles(e, head->segments, first);
    if (s->pairs != NULL) {
        s->pairs->across(as_pairs(s->q_WT), head->q + first * row, row, queries, D);
    } else {
        pack(s->y_TW, W, head->q + first * row, row, queries, D); // y's place is still free
        MICS_ISA_OP(tile_transpose)(s->q_WT, s->y_TW, W, queries, 1.0F / sqrtf((float)D));
    }
    for (int64_t q = 0; q < TILE; ++q) {
        s->maximum[q] = LOWEST;
        s->sum[q] = 0;
    }
    for (int64_t key = range.begin; key < range.end; key += TILE) {
        if (may_meet(e, head->segments, first, key))
            forward_pair(s, head, e, first, key, key == range.begin);
    }
    const float kept = head->drops ? head->mask.scale : 1.0F;
    for (int64_t q = 0; q < queries; ++q) {
        const float *y_W = s->y_TW + q * W, factor = kept / s->sum[q];
        mics_elem *to = head->y + (first + q) * e->C;
        for (int64_t d = 0; d < D; ++d)
            to[d] = mics_store(y_W[d] * factor);
        head->lse[(first + q) * e->H] = s->maximum[q] + logf(s->sum[q]);
    }
}

static forward_head forward_head_of(const mics_op_call *call, const extent *e, int64_t b, int64_t h)
{
    const int64_t row = b * e->T;
    const mics_elem *qkv = (const mics_elem *)call->in[0] + row * e->row;
    forward_head head = {.y = (mics_elem *)call->out + row * e->C + h * e->D,
                         .lse = call->stats + row * e->H + h,
                         .q = qkv + h * e->D,
                         .k = qkv + key_of(e, h),
                         .v = qkv + value_of(e, h),
                         .segments = segments_of(call, b),
                         .drops = mics_drops(call)};
    if (head.drops)
        head.mask = mics_mask_of(call, b, h);
    return head;
}

static void forward(const mics_op_call *call)
{
    const extent e = extent_of(&call->shape);
    const int64_t heads = call->shape.B * e.H;
    const int32_t threads = call->at->threads;
    float *workspace = call->at->workspace;
    const int64_t space_floats = thread_floats(&e);
    const int64_t tiles = (e.T + TILE - 1) / TILE, tasks = heads * tiles;
    // A head's tiles go to one thread, whose cache then holds its keys and values, unless heads are
    // few. The longest tile comes first, so that threads end together.
    const int64_t chunk = heads >= 4 * threads ? tiles : 1;
    (void)chunk; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads) schedule(dynamic, chunk)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t at = tiles - 1 - task % tiles, head = task / tiles;
        float *own = workspace + mics_op_thread() * space_floats;
        const forward_space space = forward_space_at(own, &e);
        const forward_head of = forward_head_of(call, &e, head / e.H, head % e.H);
        forward_tile(&space, &of, &e, at * TILE);
    }
}

const mics_op_kernels MICS_OP(attention_kernels) = {
    .forward = forward,
    .backward = MICS_OP(attention_backward),
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(attention_decode) : NULL,
    .decode_divides = true};
