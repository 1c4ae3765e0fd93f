// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Causal self-attention by tiles of TILE queries x TILE keys, as FlashAttention (Dao et al., 2022,
// arXiv:2205.14135, algorithms 1 and 4). Only tiles on or below the diagonal are computed.
//
// Legend: q queries and k keys of a tile (at most TILE), D head dimension, W = D rounded up to
// whole vectors. Tiles in the workspace have a fixed row length, TILE or W, and hold 0 between the
// last row or column and the next whole vector.
#include "ops/attention/def.h"
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"
#include <math.h>
#include <string.h>

#include "ops/common/threads.h"

enum { TILE = MICS_ATTENTION_TILE };

static int64_t minimum(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t whole_vectors(int64_t elems)
{
    return (elems + MICS_LANES - 1) / MICS_LANES * MICS_LANES;
}

// Rows of a head lie far apart, so the CPU does not fetch the next one by itself. Fetching
// so many rows ahead took 6 % off the backward kernel at T = 256, D = 64 (Xeon of 2023, one
// thread).
enum { AHEAD_ROWS = 8, LINE_FLOATS = 16 };

// dst (rows, W) = src (rows, D), padded with 0 to whole vectors both ways.
static void pack(float *dst, int64_t W, const float *src, int64_t stride, int64_t rows, int64_t D)
{
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t d = 0; d < D && row + AHEAD_ROWS < rows; d += LINE_FLOATS)
            __builtin_prefetch(src + (row + AHEAD_ROWS) * stride + d);
        memcpy(dst + row * W, src + row * stride, (size_t)D * sizeof *dst);
        memset(dst + row * W + D, 0, (size_t)(W - D) * sizeof *dst);
    }
    memset(dst + rows * W, 0, (size_t)((whole_vectors(rows) - rows) * W) * sizeof *dst);
}

// Four floats: every CPU's vectors hold them, and four by four transpose in registers.
typedef float quad __attribute__((vector_size(16)));
typedef float quad_anywhere __attribute__((vector_size(16), aligned(4), may_alias));

static inline void transpose_quad(float *dst, const float *src, int64_t W, float scale)
{
    quad row[4], half[4];
    for (int i = 0; i < 4; ++i)
        row[i] = *(const quad_anywhere *)(src + i * W) * scale;
    half[0] = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    half[1] = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    half[2] = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    half[3] = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    row[0] = __builtin_shufflevector(half[0], half[1], 0, 1, 4, 5);
    row[1] = __builtin_shufflevector(half[0], half[1], 2, 3, 6, 7);
    row[2] = __builtin_shufflevector(half[2], half[3], 0, 1, 4, 5);
    row[3] = __builtin_shufflevector(half[2], half[3], 2, 3, 6, 7);
    for (int i = 0; i < 4; ++i)
        *(quad_anywhere *)(dst + i * TILE) = row[i];
}

// dst (W, TILE) = scale * src (rows, W) transposed; rows in whole vectors.
static void transpose(float *dst, const float *src, int64_t W, int64_t rows, float scale)
{
    for (int64_t row = 0; row < whole_vectors(rows); row += 4)
        for (int64_t d = 0; d < W; d += 4)
            transpose_quad(dst + d * TILE + row, src + row * W + d, W, scale);
}

// ---- products of tiles ----

typedef struct tile {
    const float *data;
    int64_t row, column; // strides
} tile;

// What of a product on the diagonal is not needed, because its scores are hidden.
typedef enum triangle {
    WHOLE,        // nothing
    RESULT_LOWER, // the result above its diagonal
    RESULT_UPPER, // the result below its diagonal
    FACTOR_LOWER, // A is 0 above its diagonal
    FACTOR_UPPER  // A is 0 below its diagonal
} triangle;

// The diagonal tile is computed in strips of so many rows; what each saves is whole vectors.
enum { STRIP = 16 };

// c (M, N) (+)= A (M, K) b (K, N), without the parts that `part` names. N in whole vectors.
static void product(float *c, int64_t ldc, tile a, const float *b, int64_t ldb, int64_t M,
                    int64_t N, int64_t K, bool add, triangle part)
{
    if (part == WHOLE) {
        MICS_OP(tile_product)(c, ldc, a.data, a.row, a.column, b, ldb, M, N, K, add);
        return;
    }
    for (int64_t m = 0; m < M; m += STRIP) {
        const int64_t rows = minimum(STRIP, M - m);
        const int64_t columns_end = part == RESULT_LOWER ? minimum(N, m + STRIP) : N;
        const int64_t columns_begin = part == RESULT_UPPER ? m : 0;
        const int64_t k_end = part == FACTOR_LOWER ? minimum(K, m + STRIP) : K;
        const int64_t k_begin = part == FACTOR_UPPER ? m : 0;
        MICS_OP(tile_product)
        (c + m * ldc + columns_begin, ldc, a.data + m * a.row + k_begin * a.column, a.row, a.column,
         b + k_begin * ldb + columns_begin, ldb, rows, columns_end - columns_begin, k_end - k_begin,
         add);
    }
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

// qkv and y point at this head of the sequence's first row; stride and y_stride: floats a row.
static void forward_tile(const forward_space *s, float *y, float *lse, const float *qkv,
                         int64_t first, int64_t T, int64_t H, int64_t D)
{
    const int64_t C = H * D, stride = 3 * C, W = whole_vectors(D);
    const int64_t queries = minimum(TILE, T - first), columns = whole_vectors(queries);
    pack(s->y_TW, W, qkv + first * stride, stride, queries, D); // y's place is still free
    transpose(s->q_WT, s->y_TW, W, queries, 1.0F / sqrtf((float)D));
    for (int64_t q = 0; q < TILE; ++q) {
        s->maximum[q] = -INFINITY;
        s->sum[q] = 0;
    }
    for (int64_t key = 0; key <= first; key += TILE) {
        const int64_t keys = minimum(TILE, T - key);
        const bool diagonal = key == first;
        const tile k = {qkv + C + key * stride, stride, 1}, p = {s->s_TT, 1, TILE};
        product(s->s_TT, TILE, k, s->q_WT, TILE, keys, columns, D, false,
                diagonal ? RESULT_UPPER : WHOLE);
        if (diagonal)
            hide_future_keys(s->s_TT, keys);
        softmax_step(s, keys, columns, diagonal);
        pack(s->v_TW, W, qkv + 2 * C + key * stride, stride, keys, D);
        if (key > 0)
            scale_rows(s->y_TW, s->rescale, queries, W);
        product(s->y_TW, W, p, s->v_TW, W, queries, W, keys, key > 0,
                diagonal ? FACTOR_LOWER : WHOLE);
    }
    for (int64_t q = 0; q < queries; ++q) {
        const float *y_W = s->y_TW + q * W, factor = 1.0F / s->sum[q];
        float *to = y + (first + q) * C;
        for (int64_t d = 0; d < D; ++d)
            to[d] = y_W[d] * factor;
        lse[(first + q) * H] = s->maximum[q] + logf(s->sum[q]);
    }
}

static void forward(const mics_op_call *call)
{
    const int64_t B = call->shape.B, T = call->shape.T, H = call->shape.heads,
                  D = call->shape.out / H;
    const int32_t threads = call->at->threads;
    const float *qkv_N3C = call->in[0];
    float *y_NC = call->out, *lse_NH = call->stats, *workspace = call->at->workspace;
    const int64_t C = H * D, tiles = (T + TILE - 1) / TILE, tasks = B * H * tiles;
    // A head's tiles go to one thread, whose cache then holds its keys and values, unless heads are
    // few. The longest tile comes first, so that threads end together.
    const int64_t chunk = B * H >= 4 * threads ? tiles : 1;
    (void)chunk; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads) schedule(dynamic, chunk)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t at = tiles - 1 - task % tiles, b = task / tiles / H, h = task / tiles % H;
        float *own = workspace + mics_op_thread() * mics_attention_workspace(D);
        const forward_space space = forward_space_at(own, D);
        forward_tile(&space, y_NC + b * T * C + h * D, lse_NH + b * T * H + h,
                     qkv_N3C + b * T * 3 * C + h * D, at * TILE, T, H, D);
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
    return s;
}

// One head of one sequence: each pointer at its first row.
typedef struct backward_head {
    float *dqkv;
    const float *dy, *y, *lse, *qkv;
    int64_t T, H, D;
} backward_head;

// p = e^(scale s - lse), 0 where hidden; ds = p (dp - delta) scale.
static void softmax_backward(const backward_space *s, const float *lse, int64_t H, int64_t queries,
                             int64_t keys, int64_t columns, float scale, bool diagonal)
{
    for (int64_t q = 0; q < queries; ++q) {
        float *p_T = s->p_TT + q * TILE, *ds_T = s->ds_TT + q * TILE;
        const float log_sum = lse[q * H], delta = s->delta[q];
        const int64_t seen = diagonal ? minimum(q + 1, keys) : keys;
#pragma omp simd
        for (int64_t k = 0; k < seen; ++k) {
            p_T[k] = mics_exp(p_T[k] * scale - log_sum);
            ds_T[k] = p_T[k] * (ds_T[k] - delta) * scale;
        }
        for (int64_t k = seen;
             k < (diagonal ? minimum(columns, q / STRIP * STRIP + STRIP) : columns); ++k)
            p_T[k] = ds_T[k] = 0;
    }
}

static void store_rows(float *dst, int64_t stride, const float *src_TW, int64_t rows, int64_t D,
                       bool add)
{
    const int64_t W = whole_vectors(D);
    for (int64_t row = 0; row < rows; ++row) {
        float *to = dst + row * stride;
        const float *from = src_TW + row * W;
        if (add) {
#pragma omp simd
            for (int64_t d = 0; d < D; ++d)
                to[d] += from[d];
        } else {
            memcpy(to, from, (size_t)D * sizeof *to);
        }
    }
}

static void row_dots(float *dots_T, const float *a, const float *b, int64_t stride, int64_t rows,
                     int64_t D)
{
    for (int64_t row = 0; row < rows; ++row) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t d = 0; d < D; ++d)
            sum += a[row * stride + d] * b[row * stride + d];
        dots_T[row] = sum;
    }
}

// The queries from row `first` on against the keys from row `key` on, which are packed.
static void backward_pair(const backward_space *s, const backward_head *head, int64_t first,
                          int64_t key)
{
    const int64_t H = head->H, D = head->D, C = H * D, stride = 3 * C, W = whole_vectors(D);
    const int64_t queries = minimum(TILE, head->T - first), keys = minimum(TILE, head->T - key);
    const int64_t columns = whole_vectors(keys);
    const bool diagonal = first == key;
    pack(s->q_TW, W, head->qkv + first * stride, stride, queries, D);
    pack(s->dy_TW, W, head->dy + first * C, C, queries, D);
    row_dots(s->delta, head->dy + first * C, head->y + first * C, C, queries, D);
    const tile q = {s->q_TW, W, 1}, dy = {s->dy_TW, W, 1};
    product(s->p_TT, TILE, q, s->k_WT, TILE, queries, columns, D, false,
            diagonal ? RESULT_LOWER : WHOLE);
    product(s->ds_TT, TILE, dy, s->v_WT, TILE, queries, columns, D, false,
            diagonal ? RESULT_LOWER : WHOLE);
    softmax_backward(s, head->lse + first * H, H, queries, keys, columns, 1.0F / sqrtf((float)D),
                     diagonal);
    const tile p_turned = {s->p_TT, 1, TILE}, ds_turned = {s->ds_TT, 1, TILE};
    const tile ds = {s->ds_TT, TILE, 1};
    product(s->dv_TW, W, p_turned, s->dy_TW, W, keys, W, queries, !diagonal,
            diagonal ? FACTOR_UPPER : WHOLE);
    product(s->dk_TW, W, ds_turned, s->q_TW, W, keys, W, queries, !diagonal,
            diagonal ? FACTOR_UPPER : WHOLE);
    product(s->dq_TW, W, ds, s->k_TW, W, queries, W, keys, false, diagonal ? FACTOR_LOWER : WHOLE);
    store_rows(head->dqkv + first * stride, stride, s->dq_TW, queries, D, key > 0);
}

static void backward_one_head(const backward_space *s, const backward_head *head)
{
    const int64_t D = head->D, C = head->H * D, stride = 3 * C, W = whole_vectors(D);
    for (int64_t key = 0; key < head->T; key += TILE) {
        const int64_t keys = minimum(TILE, head->T - key);
        const float *k = head->qkv + C + key * stride, *v = k + C;
        pack(s->dq_TW, W, v, stride, keys, D); // dq's place is still free
        transpose(s->v_WT, s->dq_TW, W, keys, 1.0F);
        pack(s->k_TW, W, k, stride, keys, D);
        transpose(s->k_WT, s->k_TW, W, keys, 1.0F);
        for (int64_t first = key; first < head->T; first += TILE)
            backward_pair(s, head, first, key);
        float *dk = head->dqkv + C + key * stride;
        store_rows(dk, stride, s->dk_TW, keys, D, false);
        store_rows(dk + C, stride, s->dv_TW, keys, D, false);
    }
}

// A head's three gradients are one task, so that each sum has one order.
static void backward(const mics_op_call *call)
{
    const int64_t B = call->shape.B, T = call->shape.T, H = call->shape.heads,
                  D = call->shape.out / H;
    const int32_t threads = call->at->threads;
    const float *dy_NC = call->dout, *y_NC = call->out, *lse_NH = call->stats,
                *qkv_N3C = call->in[0];
    float *dqkv_N3C = call->din, *workspace = call->at->workspace;
    const int64_t C = H * D, tasks = B * H;
    (void)threads; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t task = 0; task < tasks; ++task) {
        const int64_t row = task / H * T, h = task % H, at = row * C + h * D;
        const backward_head head = {
            .dqkv = dqkv_N3C + row * 3 * C + h * D,
            .dy = dy_NC + at,
            .y = y_NC + at,
            .lse = lse_NH + row * H + h,
            .qkv = qkv_N3C + row * 3 * C + h * D,
            .T = T,
            .H = H,
            .D = D,
        };
        float *own = workspace + mics_op_thread() * mics_attention_workspace(D);
        const backward_space space = backward_space_at(own, D);
        backward_one_head(&space, &head);
    }
}

// ---- decoding ----

static void decode_head(float *y_D, float *scores_L, const float *q_D, const float *keys,
                        const float *values, int64_t length, int64_t C, int64_t D)
{
    const float scale = 1.0F / sqrtf((float)D);
    float maximum = -INFINITY;
    for (int64_t l = 0; l < length; ++l) {
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < D; ++d)
            dot += q_D[d] * keys[l * C + d];
        scores_L[l] = dot * scale;
        maximum = scores_L[l] > maximum ? scores_L[l] : maximum;
    }
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t l = 0; l < length; ++l) {
        scores_L[l] = mics_exp(scores_L[l] - maximum);
        sum += scores_L[l];
    }
    memset(y_D, 0, (size_t)D * sizeof *y_D);
    for (int64_t l = 0; l < length; ++l) {
        const float weight = scores_L[l] / sum;
#pragma omp simd
        for (int64_t d = 0; d < D; ++d)
            y_D[d] += weight * values[l * C + d];
    }
}

// One new row against a cache: all keys so far (capacity, C), then all values.
static void decode(const mics_op_call *call)
{
    const int64_t H = call->shape.heads, C = call->shape.out, D = C / H,
                  length = call->position + 1;
    const float *q_C = call->in[0];
    float *keys_LC = call->cache, *values_LC = call->cache + call->capacity * C;
    float *y_C = call->out, *workspace = call->at->workspace;
    memcpy(keys_LC + call->position * C, q_C + C, (size_t)C * sizeof *q_C);
    memcpy(values_LC + call->position * C, q_C + 2 * C, (size_t)C * sizeof *q_C);
#pragma omp parallel for if (length * C >= MICS_OP_PARALLEL)
    for (int64_t h = 0; h < H; ++h)
        decode_head(y_C + h * D, workspace + h * length, q_C + h * D, keys_LC + h * D,
                    values_LC + h * D, length, C, D);
}

const mics_op_kernels MICS_OP(attention_kernels) = {
    .forward = forward, .backward = backward, .decode = decode};
