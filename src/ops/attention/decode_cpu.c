// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention in generation: new tokens against a cache of keys and values. A sequence's cache has
// the keys (K, capacity, D), then the values alike, so what a key-value head reads lies in one
// piece. A share is one key-value head of one sequence, with the query heads that read it.
//
// Legend: K key-value heads; S query heads that share one; D head dimension; L tokens of the cache.
#include "base/shares.h"
#include "ops/attention/def.h"
#include "ops/common/decode.h"
#include "ops/common/vector_math.h"
#include <math.h>
#include <string.h>

enum { PROMPT_ROWS = MICS_ATTENTION_PROMPT_ROWS };

// Keys, or values, that stay in the nearest cache for all query heads that read them.
enum { BLOCK = 32 };

// A key-value head of one sequence.
typedef struct head {
    const float *q;       // of the first token, S heads of D
    float *y;             // alike
    float *keys, *values; // (capacity, D)
    float *workspace;
    int64_t S, D, window; // window: more than any length where there is none
    int64_t q_stride, y_stride;
} head;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t first_seen(const head *h, int64_t position)
{
    return position >= h->window ? position - h->window + 1 : 0;
}

// Scores to probabilities.
static void softmax(float *scores_L, int64_t L)
{
    float maximum = -INFINITY, sum = 0;
    for (int64_t l = 0; l < L; ++l)
        maximum = scores_L[l] > maximum ? scores_L[l] : maximum;
#pragma omp simd reduction(+ : sum)
    for (int64_t l = 0; l < L; ++l) {
        scores_L[l] = mics_exp(scores_L[l] - maximum);
        sum += scores_L[l];
    }
    const float scale = 1.0F / sum;
#pragma omp simd
    for (int64_t l = 0; l < L; ++l)
        scores_L[l] *= scale;
}

// ---- one token ----

static void score(float *scores_L, const float *q_D, const float *keys_LD, int64_t L, int64_t D)
{
    const float scale = 1.0F / sqrtf((float)D);
    for (int64_t l = 0; l < L; ++l) {
        const float *key_D = keys_LD + l * D;
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t d = 0; d < D; ++d)
            dot += q_D[d] * key_D[d];
        scores_L[l] = dot * scale;
    }
}

static void add_values(float *y_D, const float *weights_L, const float *values_LD, int64_t L,
                       int64_t D)
{
    for (int64_t l = 0; l < L; ++l) {
        const float *value_D = values_LD + l * D, weight = weights_L[l];
#pragma omp simd
        for (int64_t d = 0; d < D; ++d)
            y_D[d] += weight * value_D[d];
    }
}

static void attend_token(const head *h, int64_t position)
{
    const int64_t D = h->D, first = first_seen(h, position), L = position + 1 - first;
    const float *keys = h->keys + first * D, *values = h->values + first * D;
    for (int64_t l = 0; l < L; l += BLOCK)
        for (int64_t s = 0; s < h->S; ++s)
            score(h->workspace + s * L + l, h->q + s * D, keys + l * D, smaller(BLOCK, L - l), D);
    for (int64_t s = 0; s < h->S; ++s)
        softmax(h->workspace + s * L, L);
    memset(h->y, 0, (size_t)(h->S * D) * sizeof *h->y);
    for (int64_t l = 0; l < L; l += BLOCK)
        for (int64_t s = 0; s < h->S; ++s)
            add_values(h->y + s * D, h->workspace + s * L + l, values + l * D,
                       smaller(BLOCK, L - l), D);
}

// ---- some tokens ----

// Scores (rows, L) of tokens from `position` on against keys from `first` on, with what a token may
// not see at 0.
static void softmax_rows(const head *h, int64_t position, int64_t rows, int64_t first, int64_t L)
{
    for (int64_t row = 0; row < rows; ++row) {
        float *scores_L = h->workspace + row * L;
        const int64_t begin = first_seen(h, position + row) - first;
        const int64_t end = position + row + 1 - first;
        memset(scores_L, 0, (size_t)begin * sizeof *scores_L);
        softmax(scores_L + begin, end - begin);
        memset(scores_L + end, 0, (size_t)(L - end) * sizeof *scores_L);
    }
}

static void attend_tokens(const head *h, int64_t position, int64_t tokens)
{
    const int64_t D = h->D;
    const float scale = 1.0F / sqrtf((float)D);
    for (int64_t row = 0; row < tokens; row += PROMPT_ROWS) {
        const int64_t rows = smaller(PROMPT_ROWS, tokens - row);
        const int64_t first = first_seen(h, position + row), L = position + row + rows - first;
        for (int64_t s = 0; s < h->S; ++s) {
            mics_gemm(false, true, rows, L, D, scale, h->q + row * h->q_stride + s * D, h->q_stride,
                      h->keys + first * D, D, 0.0F, h->workspace, L);
            softmax_rows(h, position + row, rows, first, L);
            mics_gemm(false, false, rows, D, L, 1.0F, h->workspace, L, h->values + first * D, D,
                      0.0F, h->y + row * h->y_stride + s * D, h->y_stride);
        }
    }
}

// ---- both ----

static void keep(float *cache_LD, const float *from, int64_t stride, int64_t tokens, int64_t D)
{
    for (int64_t t = 0; t < tokens; ++t)
        memcpy(cache_LD + t * D, from + t * stride, (size_t)D * sizeof *cache_LD);
}

static void attend(const mics_op_call *call, int64_t b, int64_t kv)
{
    const mics_heads heads = call->shape.heads;
    const int64_t D = heads.dim, K = heads.key_value, S = heads.query / K, T = call->shape.T;
    const int64_t row = mics_heads_width(heads), C = heads.query * D;
    const int64_t window = call->shape.op->window, elems = call->capacity * D;
    const float *qkv = (const float *)call->in[0] + b * T * row;
    float *keys = call->cache + (b * 2 * K + kv) * elems, *values = keys + K * elems;
    const head h = {.q = qkv + kv * S * D,
                    .y = (float *)call->out + b * T * C + kv * S * D,
                    .keys = keys,
                    .values = values,
                    .workspace = call->at->workspace,
                    .S = S,
                    .D = D,
                    .window = window > 0 ? window : INT64_MAX,
                    .q_stride = row,
                    .y_stride = C};
    keep(keys + call->position * D, qkv + C + kv * D, row, T, D);
    keep(values + call->position * D, qkv + C + (K + kv) * D, row, T, D);
    if (T == 1)
        attend_token(&h, call->position);
    else
        attend_tokens(&h, call->position, T);
}

void MICS_ISA_OP(attention_decode)(const mics_op_call *call)
{
    const int64_t K = call->shape.heads.key_value, total = call->shape.B * K;
    for (int64_t share = -1; mics_share_next(call->shares, total, &share);)
        attend(call, share / K, share % K);
}
