// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Causal self-attention by tiles of TILE queries x TILE keys, as FlashAttention (Dao et al., 2022,
// arXiv:2205.14135, algorithms 1 and 4). Only tiles on or below the diagonal are computed, and of a
// window only those that it touches. Query heads that share a key-value head read the same rows.
//
// Legend: q queries and k keys of a tile (at most TILE), D head dimension, W = D rounded up to
// whole vectors. Tiles in the workspace have a fixed row length, TILE or W, and hold 0 between the
// last row or column and the next whole vector.
#include "ops/attention/def.h"
#include "ops/attention/tile.h"
#include "ops/common/decode.h"
#include "ops/common/mask.h"
#include "ops/common/threads.h"
#include "ops/common/vector_math.h"
#include <math.h>
#include <string.h>

enum { TILE = MICS_ATTENTION_TILE };

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t maximum(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

// What all heads of a call share.
typedef struct extent {
    int64_t T, H, D; // H query heads
    int64_t shared;  // query heads that read one key-value head
    int64_t row, C;  // floats of a token's q, k and v, and of its y
    int64_t window;  // keys that a query sees; more than T where there is none
} extent;

static extent extent_of(const mics_op_shape *shape)
{
    const mics_heads heads = shape->heads;
    const int64_t window = shape->op->window;
    return (extent){.T = shape->T,
                    .H = heads.query,
                    .D = heads.dim,
                    .shared = heads.query / heads.key_value,
                    .row = mics_heads_width(heads),
                    .C = heads.query * heads.dim,
                    .window = window > 0 ? window : INT64_MAX / 2};
}

// Where the keys and values of a query head begin in a token's row.
static int64_t key_of(const extent *e, int64_t h)
{
    return e->C + h / e->shared * e->D;
}
static int64_t value_of(const extent *e, int64_t h)
{
    return key_of(e, h) + e->C / e->shared;
}

// The first tile of keys that the queries from `first` on see.
static int64_t first_tile(const extent *e, int64_t first)
{
    return maximum(first - e->window + 1, 0) / TILE * TILE;
}

// Whether some of the queries from `first` on no longer see some of the keys from `key` on.
static bool leaves_window(const extent *e, int64_t first, int64_t queries, int64_t key)
{
    return first + queries - 1 - key >= e->window;
}

static int64_t thread_floats(const extent *e)
{
    return MICS_ELEM_FP32 ? mics_attention_workspace(e->D)
                          : mics_attention_workspace_bf16(e->T, e->shared, e->D);
}

static int64_t whole_vectors(int64_t elems)
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
static void pack(float *dst, int64_t W, const mics_elem *src, int64_t stride, int64_t rows,
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

// ---- forward ----

// One thread's tiles. Scores are kept transposed, (keys, queries), so that maxima and sums over
// keys run down whole vectors of queries.
typedef struct forward_space {
    float *q_WT;    // (W, TILE), scaled by 1/sqrt(D)
    float *v_TW;    // (TILE, W)
    float *y_TW;    // (TILE, W), not yet divided by the sum
    float *s_TT;    // (TILE keys, TILE queries): scores, then their exponentials
    float *maximum; // (TILE): running maximum of each query
    float *sum;     // (TILE): running sum of e^(score - maximum)
    float *rescale; // (TILE): e^(old maximum - new maximum)
} forward_space;

static forward_space forward_space_at(float *workspace, int64_t D)
{
    const int64_t W = whole_vectors(D);
    forward_space s;
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

// Scores of keys that a query may not see: the diagonal tile's queries and keys start together.
static void hide_future_keys(float *s_TT, int64_t keys)
{
    for (int64_t k = 1; k < keys; ++k)
        for (int64_t q = first_column(k, true); q < k; ++q)
            s_TT[k * TILE + q] = -INFINITY;
}

// And those of keys that lie before the window of a query: `distance` from key to query in the
// tile's corner.
static void hide_past_keys(float *s_TT, int64_t keys, int64_t columns, int64_t distance,
                           int64_t window)
{
    for (int64_t k = 0; k < keys; ++k)
        for (int64_t q = maximum(window + k - distance, 0); q < columns; ++q)
            s_TT[k * TILE + q] = -INFINITY;
}

// Before the first score of a query. Not -inf: a whole tile of its scores may be hidden.
static const float LOWEST = -3e38F;

// Scores to exponentials, with the running maximum and sum brought up to date.
static void softmax_step(const forward_space *s, int64_t keys, int64_t columns, bool diagonal)
{
    float highest[TILE];
    memcpy(highest, s->maximum, sizeof highest);
    for (int64_t k = 0; k < keys; ++k) {
        const float *s_T = s->s_TT + k * TILE;
#pragma omp simd
        for (int64_t q = first_column(k, diagonal); q < columns; ++q)
            highest[q] = s_T[q] > highest[q] ? s_T[q] : highest[q];
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
            float e = mics_exp(s_T[q] - highest[q]);
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

static void forward_tile(const forward_space *s, const forward_head *head, const extent *e,
                         int64_t first)
{
    const int64_t T = e->T, D = e->D, row = e->row, W = whole_vectors(D);
    const int64_t queries = minimum(TILE, T - first), columns = whole_vectors(queries);
    const int64_t begin = first_tile(e, first);
    pack(s->y_TW, W, head->q + first * row, row, queries, D); // y's place is still free
    MICS_ISA_OP(tile_transpose)(s->q_WT, s->y_TW, W, queries, 1.0F / sqrtf((float)D));
    for (int64_t q = 0; q < TILE; ++q) {
        s->maximum[q] = LOWEST;
        s->sum[q] = 0;
    }
    for (int64_t key = begin; key <= first; key += TILE) {
        const int64_t keys = minimum(TILE, T - key);
        const bool diagonal = key == first;
        const tile k = key_tile(s, head->k + key * row, row, keys, D), p = {s->s_TT, 1, TILE};
        MICS_ISA_OP(tile_product)
        (s->s_TT, TILE, k, s->q_WT, TILE, keys, columns, D, false, diagonal ? RESULT_UPPER : WHOLE);
        if (diagonal)
            hide_future_keys(s->s_TT, keys);
        if (leaves_window(e, first, queries, key))
            hide_past_keys(s->s_TT, keys, columns, first - key, e->window);
        softmax_step(s, keys, columns, diagonal);
        if (head->drops)
            drop_keys(s, &head->mask, first, columns, key, keys, diagonal);
        pack(s->v_TW, W, head->v + key * row, row, keys, D);
        if (key > begin)
            scale_rows(s->y_TW, s->rescale, queries, W);
        MICS_ISA_OP(tile_product)
        (s->y_TW, W, p, s->v_TW, W, queries, W, keys, key > begin, diagonal ? FACTOR_LOWER : WHOLE);
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
        const forward_space space = forward_space_at(own, e.D);
        const forward_head of = forward_head_of(call, &e, head / e.H, head % e.H);
        forward_tile(&space, &of, &e, at * TILE);
    }
}

// ---- backward ----

// One thread's tiles. Scores lie as (queries, keys): keys are packed once, queries pass by.
typedef struct backward_space {
    float *k_WT, *v_WT;           // (W, TILE), transposed
    float *k_TW, *q_TW, *dy_TW;   // (TILE, W)
    float *dk_TW, *dv_TW, *dq_TW; // (TILE, W): sums over the queries that pass by; dq of one pass
    float *p_TT, *ds_TT;          // (TILE queries, TILE keys)
    float *delta;                 // (TILE): dy . y of each query
    float *dq_sums;               // of bf16: (shared, T, W), so that dq is rounded once
} backward_space;

static backward_space backward_space_at(float *workspace, int64_t D)
{
    const int64_t W = whole_vectors(D);
    backward_space s;
    s.k_WT = workspace;
    s.v_WT = s.k_WT + W * TILE;
    s.k_TW = s.v_WT + W * TILE;
    s.q_TW = s.k_TW + TILE * W;
    s.dy_TW = s.q_TW + TILE * W;
    s.dk_TW = s.dy_TW + TILE * W;
    s.dv_TW = s.dk_TW + TILE * W;
    s.dq_TW = s.dv_TW + TILE * W;
    s.p_TT = s.dq_TW + TILE * W;
    s.ds_TT = s.p_TT + TILE * TILE;
    s.delta = s.ds_TT + TILE * TILE;
    s.dq_sums = s.delta + TILE;
    return s;
}

// The query heads that read one key-value head, of one sequence: each pointer at the first row, and
// for queries at the first head.
typedef struct backward_group {
    mics_elem *dq, *dk, *dv;
    const mics_elem *dy, *y, *q, *k, *v;
    const float *lse;
    bool drops;
    mics_mask mask; // of the first head, where it drops
} backward_group;

// Scores of a tile, and which of them are seen.
typedef struct scores {
    int64_t queries, keys, columns; // columns: keys in whole vectors
    int64_t first, key;             // query and key in the tile's corner
    bool diagonal;
    const mics_mask *mask; // NULL: nothing is dropped
} scores;

// Of one query, the keys that it sees: p = e^(scale s - lse), ds = p (dp - delta) scale.
static inline void softmax_backward_row(float *p, float *ds, int64_t keys, float scale,
                                        float log_sum, float delta)
{
#pragma omp simd
    for (int64_t k = 0; k < keys; ++k) {
        p[k] = mics_exp(p[k] * scale - log_sum);
        ds[k] = p[k] * (ds[k] - delta) * scale;
    }
}

// The same with dropout: p and dp of what is dropped count as 0, and what is kept is scaled.
static inline void softmax_backward_dropped(float *p, float *ds, const uint16_t *bits,
                                            const mics_mask *mask, int64_t keys, float scale,
                                            float log_sum, float delta)
{
    const uint32_t threshold = mask->threshold;
    const float kept = mask->scale;
#pragma omp simd
    for (int64_t k = 0; k < keys; ++k) {
        const float e = mics_exp(p[k] * scale - log_sum), keep = bits[k] < threshold ? 0.0F : kept;
        ds[k] = e * (ds[k] * keep - delta) * scale;
        p[k] = e * keep;
    }
}

// Rows of a tile whose random bits are made at once.
enum { MASK_ROWS = 4, ROW_BLOCKS_LOG2 = 3 };
_Static_assert(TILE == MICS_MASK_BLOCK << ROW_BLOCKS_LOG2, "a row of a tile is so many blocks");

// All queries of a tile; 0 where keys are hidden.
static void softmax_backward(const backward_space *s, const scores *of, const float *lse,
                             const extent *e)
{
    const float scale = 1.0F / sqrtf((float)e->D);
    uint16_t bits[MASK_ROWS * TILE];
    for (int64_t q = 0; q < of->queries; ++q) {
        float *p_T = s->p_TT + q * TILE, *ds_T = s->ds_TT + q * TILE;
        const float log_sum = lse[q * e->H], delta = s->delta[q];
        const int64_t past =
            minimum(maximum(of->first - of->key + q - e->window + 1, 0), of->columns);
        const int64_t seen = of->diagonal ? minimum(q + 1, of->keys) : of->keys;
        for (int64_t k = 0; k < past; ++k)
            p_T[k] = ds_T[k] = 0;
        if (of->mask != NULL && q % MASK_ROWS == 0)
            MICS_ISA_OP(mask_rows)
        (bits, of->mask, of->first + q, of->key / MICS_MASK_BLOCK, ROW_BLOCKS_LOG2,
         MASK_ROWS * TILE / MICS_MASK_BLOCK);
        if (of->mask != NULL)
            softmax_backward_dropped(p_T + past, ds_T + past, bits + q % MASK_ROWS * TILE + past,
                                     of->mask, seen - past, scale, log_sum, delta);
        else
            softmax_backward_row(p_T + past, ds_T + past, seen - past, scale, log_sum, delta);
        for (int64_t k = seen;
             k < (of->diagonal ? minimum(of->columns, q / STRIP * STRIP + STRIP) : of->columns);
             ++k)
            p_T[k] = ds_T[k] = 0;
    }
}

static void store_rows(mics_elem *dst, int64_t stride, const float *src_TW, int64_t rows, int64_t D,
                       bool add)
{
    const int64_t W = whole_vectors(D);
    for (int64_t row = 0; row < rows; ++row) {
        mics_elem *to = dst + row * stride;
        const float *from = src_TW + row * W;
        if (add) {
#pragma omp simd
            for (int64_t d = 0; d < D; ++d)
                to[d] = mics_store(mics_load(to[d]) + from[d]);
        } else {
#pragma omp simd
            for (int64_t d = 0; d < D; ++d)
                to[d] = mics_store(from[d]);
        }
    }
}

// Adds a pass's dq, of the queries from `first` on. Keys pass in order; those of the last tile that
// the queries see end the sum.
static void add_queries(const backward_space *s, mics_elem *dq, const extent *e, int64_t h,
                        int64_t first, int64_t key)
{
    const int64_t queries = minimum(TILE, e->T - first);
    const bool begins = key <= first_tile(e, first);
    if (MICS_ELEM_FP32 || (begins && key == first)) {
        store_rows(dq, e->row, s->dq_TW, queries, e->D, !begins);
        return;
    }
    const int64_t W = whole_vectors(e->D);
    float *sum = s->dq_sums + (h * e->T + first) * W;
#pragma omp simd
    for (int64_t i = 0; i < queries * W; ++i)
        sum[i] = begins ? s->dq_TW[i] : sum[i] + s->dq_TW[i];
    if (key == first)
        store_rows(dq, e->row, sum, queries, e->D, false);
}

static void row_dots(float *dots_T, const mics_elem *a, const mics_elem *b, int64_t stride,
                     int64_t rows, int64_t D)
{
    for (int64_t row = 0; row < rows; ++row) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < D; ++d)
            sum += mics_load(a[row * stride + d]) * mics_load(b[row * stride + d]);
        dots_T[row] = sum;
    }
}

// The queries from row `first` on, of head number `h` of the group, against the keys from row `key`
// on, which are packed.
static void backward_pair(const backward_space *s, const backward_group *group, const extent *e,
                          int64_t h, int64_t first, int64_t key)
{
    const int64_t D = e->D, C = e->C, row = e->row, W = whole_vectors(D);
    const mics_elem *dy_T = group->dy + first * C + h * D, *y_T = group->y + first * C + h * D;
    const int64_t queries = minimum(TILE, e->T - first), keys = minimum(TILE, e->T - key);
    const int64_t columns = whole_vectors(keys);
    const bool diagonal = first == key, add = h > 0 || !diagonal;
    mics_mask mask = group->mask;
    mask.number += (uint32_t)h;
    const scores seen = {queries, keys, columns, first, key, diagonal, group->drops ? &mask : NULL};
    pack(s->q_TW, W, group->q + first * row + h * D, row, queries, D);
    pack(s->dy_TW, W, dy_T, C, queries, D);
    row_dots(s->delta, dy_T, y_T, C, queries, D);
    const tile q = {s->q_TW, W, 1}, dy = {s->dy_TW, W, 1};
    MICS_ISA_OP(tile_product)
    (s->p_TT, TILE, q, s->k_WT, TILE, queries, columns, D, false, diagonal ? RESULT_LOWER : WHOLE);
    MICS_ISA_OP(tile_product)
    (s->ds_TT, TILE, dy, s->v_WT, TILE, queries, columns, D, false,
     diagonal ? RESULT_LOWER : WHOLE);
    softmax_backward(s, &seen, group->lse + first * e->H + h, e);
    const tile p_turned = {s->p_TT, 1, TILE}, ds_turned = {s->ds_TT, 1, TILE};
    const tile ds = {s->ds_TT, TILE, 1};
    MICS_ISA_OP(tile_product)
    (s->dv_TW, W, p_turned, s->dy_TW, W, keys, W, queries, add, diagonal ? FACTOR_UPPER : WHOLE);
    MICS_ISA_OP(tile_product)
    (s->dk_TW, W, ds_turned, s->q_TW, W, keys, W, queries, add, diagonal ? FACTOR_UPPER : WHOLE);
    MICS_ISA_OP(tile_product)
    (s->dq_TW, W, ds, s->k_TW, W, queries, W, keys, false, diagonal ? FACTOR_LOWER : WHOLE);
    add_queries(s, group->dq + first * row + h * D, e, h, first, key);
}

static void backward_one_group(const backward_space *s, const backward_group *group,
                               const extent *e)
{
    const int64_t D = e->D, row = e->row, W = whole_vectors(D);
    for (int64_t key = 0; key < e->T; key += TILE) {
        const int64_t keys = minimum(TILE, e->T - key);
        const mics_elem *k = group->k + key * row, *v = group->v + key * row;
        pack(s->dq_TW, W, v, row, keys, D); // dq's place is still free
        MICS_ISA_OP(tile_transpose)(s->v_WT, s->dq_TW, W, keys, 1.0F);
        pack(s->k_TW, W, k, row, keys, D);
        MICS_ISA_OP(tile_transpose)(s->k_WT, s->k_TW, W, keys, 1.0F);
        for (int64_t h = 0; h < e->shared; ++h)
            for (int64_t first = key; first < e->T && first_tile(e, first) <= key; first += TILE)
                backward_pair(s, group, e, h, first, key);
        store_rows(group->dk + key * row, row, s->dk_TW, keys, D, false);
        store_rows(group->dv + key * row, row, s->dv_TW, keys, D, false);
    }
}

static backward_group backward_group_of(const mics_op_call *call, const extent *e, int64_t b,
                                        int64_t kv)
{
    const int64_t row = b * e->T, h = kv * e->shared, at = row * e->C + h * e->D;
    const mics_elem *qkv = (const mics_elem *)call->in[0] + row * e->row;
    mics_elem *dqkv = (mics_elem *)call->din + row * e->row;
    backward_group group = {.dq = dqkv + h * e->D,
                            .dk = dqkv + key_of(e, h),
                            .dv = dqkv + value_of(e, h),
                            .dy = (const mics_elem *)call->dout + at,
                            .y = (const mics_elem *)call->out + at,
                            .lse = call->stats + row * e->H + h,
                            .q = qkv + h * e->D,
                            .k = qkv + key_of(e, h),
                            .v = qkv + value_of(e, h),
                            .drops = mics_drops(call)};
    if (group.drops)
        group.mask = mics_mask_of(call, b, h);
    return group;
}

// A key-value head's gradients, and those of the queries that read it, are one task, so that each
// sum has one order.
static void backward(const mics_op_call *call)
{
    const extent e = extent_of(&call->shape);
    const int32_t threads = call->at->threads;
    float *workspace = call->at->workspace;
    const int64_t space_floats = thread_floats(&e);
    const int64_t groups = e.H / e.shared, tasks = call->shape.B * groups;
    (void)threads; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < tasks; ++task) {
        float *own = workspace + mics_op_thread() * space_floats;
        const backward_space space = backward_space_at(own, e.D);
        const backward_group group = backward_group_of(call, &e, task / groups, task % groups);
        backward_one_group(&space, &group, &e);
    }
}

const mics_op_kernels MICS_OP(attention_kernels) = {
    .forward = forward,
    .backward = backward,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(attention_decode) : NULL,
    .decode_divides = true};
