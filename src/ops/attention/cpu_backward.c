// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Self-attention backward: a key-value head's gradients, and those of the queries that read it. The
// tiles are forward's (cpu.c).
#include "ops/attention/cpu.h"
#include "ops/common/vector_math.h"
#include <math.h>

// One thread's tiles. Scores lie as (queries, keys): keys are packed once, queries pass by.
typedef struct backward_space {
    const mics_attention_pairs *pairs; // NULL: multiplies in fp32
    float *k_WT, *v_WT;                // (W, TILE), transposed; or their pairs
    float *k_TW, *q_TW, *dy_TW;        // (TILE, W), or their pairs
    float *dk_TW, *dv_TW, *dq_TW;      // (TILE, W): sums over queries that pass by; dq of one pass
    float *p_TT, *ds_TT;               // (TILE queries, TILE keys)
    float *delta;                      // (TILE): dy . y of each query
    float *dq_sums;                    // of bf16: (shared, T, W), so that dq is rounded once
} backward_space;

static backward_space backward_space_at(float *workspace, const extent *e)
{
    const int64_t W = whole_vectors(e->D);
    backward_space s = {.pairs = pairs_for(e)};
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
    const int32_t *segments; // NULL: all tokens are of one
    bool drops;
    mics_mask mask; // of the first head, where it drops
} backward_group;

// Scores of a tile, and which of them are seen.
typedef struct scores {
    int64_t queries, keys, columns; // columns: keys in whole vectors
    int64_t first, key;             // query and key in the tile's corner
    bool diagonal;
    const int32_t *of_queries, *of_keys; // segments; NULL: all are of one
    const mics_mask *mask;               // NULL: nothing is dropped
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

// Clears what one query, of segment `own`, does not see since it is of another.
static inline void clear_other_segments(float *p, float *ds, const int32_t *of_keys, int32_t own,
                                        int64_t keys)
{
#pragma omp simd
    for (int64_t k = 0; k < keys; ++k) {
        p[k] = of_keys[k] == own ? p[k] : 0.0F;
        ds[k] = of_keys[k] == own ? ds[k] : 0.0F;
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
        const int64_t at = of->first - of->key + q; // the query's own place among the keys
        const int64_t past = minimum(maximum(at - e->before, 0), of->columns);
        const int64_t seen = minimum(maximum(at + e->after + 1, 0), of->keys);
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
        if (of->of_keys != NULL)
            clear_other_segments(p_T + past, ds_T + past, of->of_keys + past, of->of_queries[q],
                                 seen - past);
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

// Adds to the fp32 sum of bf16 gradients, which its last pass rounds.
static void sum_queries(const backward_space *s, mics_elem *dq, const extent *e, int64_t h,
                        int64_t first, bool begins, bool ends)
{
    const int64_t W = whole_vectors(e->D), queries = minimum(TILE, e->T - first);
    float *sum = s->dq_sums + (h * e->T + first) * W;
#pragma omp simd
    for (int64_t i = 0; i < queries * W; ++i)
        sum[i] = begins ? s->dq_TW[i] : sum[i] + s->dq_TW[i];
    if (ends)
        store_rows(dq, e->row, sum, queries, e->D, false);
}

// Adds a pass's dq, of the queries from `first` on. Keys pass in order: those of the first and the
// last tile that the queries meet begin and end the sum.
static void add_queries(const backward_space *s, const backward_group *group, const extent *e,
                        int64_t h, int64_t first, int64_t key)
{
    const tile_range range = key_tiles(e, group->segments, first);
    const bool begins = key == range.begin;
    mics_elem *dq = group->dq + first * e->row + h * e->D;
    if (MICS_ELEM_FP32)
        store_rows(dq, e->row, s->dq_TW, minimum(TILE, e->T - first), e->D, !begins);
    else
        sum_queries(s, dq, e, h, first, begins, key == range.end - TILE);
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

// A tile of queries against one of keys.
typedef struct tile_pair {
    const mics_elem *q, *dy; // the first query's
    int64_t queries, keys;
    bool diagonal, add; // to dk and dv
} tile_pair;

// Scores, and dy v^T, by dots of pairs; then, once they are P and dS, what follows from them.
static void score_pairs(const backward_space *s, const tile_pair *of, const extent *e)
{
    const mics_attention_pairs *pairs = s->pairs;
    const int64_t columns = whole_vectors(of->keys);
    const triangle part = of->diagonal ? RESULT_LOWER : WHOLE;
    pairs->multiply(s->p_TT, TILE, rows_of(of->q, e->row), as_pairs(s->k_WT), TILE, of->queries,
                    columns, e->D, false, part);
    pairs->multiply(s->ds_TT, TILE, rows_of(of->dy, e->C), as_pairs(s->v_WT), TILE, of->queries,
                    columns, e->D, false, part);
}

static void differentiate_pairs(const backward_space *s, const tile_pair *of, const extent *e)
{
    const mics_attention_pairs *pairs = s->pairs;
    const int64_t W = whole_vectors(e->D), queries = of->queries, keys = of->keys;
    float *rounded = s->p_TT + TILE * TILE / 2; // free, once P is of pairs
    pairs->down(as_pairs(s->q_TW), W, of->q, e->row, queries, e->D);
    pairs->down(as_pairs(s->dy_TW), W, of->dy, e->C, queries, e->D);
    pairs->round_down(s->p_TT, queries);
    pairs->round_rows(rounded, s->ds_TT, queries);
    pairs->round_down(s->ds_TT, queries);
    const triangle part = of->diagonal ? FACTOR_UPPER : WHOLE;
    pairs->multiply(s->dv_TW, W, turned(s->p_TT), as_pairs(s->dy_TW), W, keys, W, queries, of->add,
                    part);
    pairs->multiply(s->dk_TW, W, turned(s->ds_TT), as_pairs(s->q_TW), W, keys, W, queries, of->add,
                    part);
    pairs->multiply(s->dq_TW, W, (mics_paired){rounded, TILE, 2}, as_pairs(s->k_TW), W, queries, W,
                    keys, false, of->diagonal ? FACTOR_LOWER : WHOLE);
}

// The same in fp32.
static void score_floats(const backward_space *s, const tile_pair *of, const extent *e)
{
    const int64_t W = whole_vectors(e->D), columns = whole_vectors(of->keys);
    const tile q = {s->q_TW, W, 1}, dy = {s->dy_TW, W, 1};
    const triangle part = of->diagonal ? RESULT_LOWER : WHOLE;
    pack(s->q_TW, W, of->q, e->row, of->queries, e->D);
    pack(s->dy_TW, W, of->dy, e->C, of->queries, e->D);
    MICS_ISA_OP(tile_multiply)
    (s->p_TT, TILE, q, s->k_WT, TILE, of->queries, columns, e->D, false, part);
    MICS_ISA_OP(tile_multiply)
    (s->ds_TT, TILE, dy, s->v_WT, TILE, of->queries, columns, e->D, false, part);
}

static void differentiate_floats(const backward_space *s, const tile_pair *of, const extent *e)
{
    const int64_t W = whole_vectors(e->D), queries = of->queries, keys = of->keys;
    const tile p_turned = {s->p_TT, 1, TILE}, ds_turned = {s->ds_TT, 1, TILE},
               ds = {s->ds_TT, TILE, 1};
    const triangle part = of->diagonal ? FACTOR_UPPER : WHOLE;
    MICS_ISA_OP(tile_multiply)(s->dv_TW, W, p_turned, s->dy_TW, W, keys, W, queries, of->add, part);
    MICS_ISA_OP(tile_multiply)(s->dk_TW, W, ds_turned, s->q_TW, W, keys, W, queries, of->add, part);
    MICS_ISA_OP(tile_multiply)
    (s->dq_TW, W, ds, s->k_TW, W, queries, W, keys, false, of->diagonal ? FACTOR_LOWER : WHOLE);
}

// The queries from row `first` on, of head number `h` of the group, against the keys from row `key`
// on, which are packed. `add`: to dk and dv.
static void backward_pair(const backward_space *s, const backward_group *group, const extent *e,
                          int64_t h, int64_t first, int64_t key, bool add)
{
    const int64_t D = e->D, C = e->C;
    const mics_elem *dy_T = group->dy + first * C + h * D, *y_T = group->y + first * C + h * D;
    const int32_t *segments =
        is_one_segment(e, group->segments, first, key) ? NULL : group->segments;
    mics_mask mask = group->mask;
    mask.number += (uint32_t)h;
    const tile_pair of = {.q = group->q + first * e->row + h * D,
                          .dy = dy_T,
                          .queries = minimum(TILE, e->T - first),
                          .keys = minimum(TILE, e->T - key),
                          .diagonal = is_diagonal(e, first, key),
                          .add = add};
    const scores seen = {.queries = of.queries,
                         .keys = of.keys,
                         .columns = whole_vectors(of.keys),
                         .first = first,
                         .key = key,
                         .diagonal = of.diagonal,
                         .of_queries = segments == NULL ? NULL : segments + first,
                         .of_keys = segments == NULL ? NULL : segments + key,
                         .mask = group->drops ? &mask : NULL};
    (s->pairs != NULL ? score_pairs : score_floats)(s, &of, e);
    row_dots(s->delta, dy_T, y_T, C, of.queries, D);
    softmax_backward(s, &seen, group->lse + first * e->H + h, e);
    (s->pairs != NULL ? differentiate_pairs : differentiate_floats)(s, &of, e);
    add_queries(s, group, e, h, first, key);
}

// Keys and values that queries pass by.
static void pack_keys(const backward_space *s, const mics_elem *k, const mics_elem *v,
                      const extent *e, int64_t keys)
{
    const int64_t D = e->D, row = e->row, W = whole_vectors(D);
    if (s->pairs != NULL) {
        s->pairs->across(as_pairs(s->v_WT), v, row, keys, D);
        s->pairs->across(as_pairs(s->k_WT), k, row, keys, D);
        s->pairs->down(as_pairs(s->k_TW), W, k, row, keys, D);
        return;
    }
    pack(s->dq_TW, W, v, row, keys, D); // dq's place is still free
    MICS_ISA_OP(tile_transpose)(s->v_WT, s->dq_TW, W, keys, 1.0F);
    pack(s->k_TW, W, k, row, keys, D);
    MICS_ISA_OP(tile_transpose)(s->k_WT, s->k_TW, W, keys, 1.0F);
}

static void backward_one_group(const backward_space *s, const backward_group *group,
                               const extent *e)
{
    const int64_t D = e->D, row = e->row;
    for (int64_t key = 0; key < e->T; key += TILE) {
        const int64_t keys = minimum(TILE, e->T - key);
        pack_keys(s, group->k + key * row, group->v + key * row, e, keys);
        const tile_range range = query_tiles(e, group->segments, key);
        for (int64_t h = 0; h < e->shared; ++h)
            for (int64_t first = range.begin; first < range.end; first += TILE)
                if (may_meet(e, group->segments, first, key))
                    backward_pair(s, group, e, h, first, key, h > 0 || first > range.begin);
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
                            .segments = segments_of(call, b),
                            .drops = mics_drops(call)};
    if (group.drops)
        group.mask = mics_mask_of(call, b, h);
    return group;
}

// A key-value head's gradients, and those of the queries that read it, are one task, so that each
// sum has one order.
void MICS_OP(attention_backward)(const mics_op_call *call)
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
        const backward_space space = backward_space_at(own, &e);
        const backward_group group = backward_group_of(call, &e, task / groups, task % groups);
        backward_one_group(&space, &group, &e);
    }
}
