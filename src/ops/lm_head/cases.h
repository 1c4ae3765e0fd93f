// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of the LM head with cross-entropy: one chunk of rows and several, rows that do not count.
#pragma once

#include "base/rng.h"
#include "ops/common/cases.h"
#include "ops/common/def.h"
#include "ops/gemm/def.h"
#include "ops/lm_head/def.h"

// A row's logit of a word, and the absolute terms that it is made of.
static double lm_head_logit(const mics_case_values *v, int64_t n, int64_t word, double *terms_out)
{
    const int64_t C = v->of->shape.in[0];
    double logit = 0;
    *terms_out = 0;
    for (int64_t i = 0; i < C; i++) {
        const double term = v->in[0].at[n * C + i] * v->params[0].at[word * C + i];
        logit += term;
        *terms_out += fabs(term);
    }
    return logit;
}

// What all words of a row come to.
typedef struct lm_head_row {
    double log_sum;
    double uncertain; // absolute terms of the largest logit, in which its exponentials err
} lm_head_row;

static lm_head_row lm_head_sum(const mics_case_values *v, int64_t n)
{
    double highest = -(double)INFINITY, sum = 0, terms = 0;
    lm_head_row row = {0, 0};
    for (int64_t word = 0; word < v->of->shape.vocab; word++) {
        const double logit = lm_head_logit(v, n, word, &terms);
        sum = logit > highest ? sum * exp(highest - logit) + 1 : sum + exp(logit - highest);
        highest = fmax(highest, logit);
        row.uncertain = fmax(row.uncertain, terms);
    }
    row.log_sum = highest + log(sum);
    return row;
}

// Logits of 2 bytes are rounded.
static double lm_head_unit(const mics_case_values *v)
{
    return v->dtype == MICS_DTYPE_FP32 ? 0 : mics_case_unit(v->dtype);
}

static void lm_head_forward(mics_case_values *v)
{
    double terms = 0;
    for (int64_t n = 0; n < v->out.elems; n++) {
        v->out.at[n] = v->out.sum[n] = 0;
        if (v->tokens[n] < 0) // it does not count
            continue;
        const lm_head_row row = lm_head_sum(v, n);
        v->out.at[n] = row.log_sum - lm_head_logit(v, n, v->tokens[n], &terms);
        v->out.sum[n] = (v->gpu ? 1 : 2) * row.uncertain + 1;
    }
    v->out.tolerance = v->gpu ? 4e-6 + 2 * lm_head_unit(v) : MICS_CASE_TOLERANCE + lm_head_unit(v);
}

// Of a GPU's gradient of the weight: rounded once a chunk, where there is no budget for its sum.
static double lm_head_roundings(const mics_case_values *v)
{
    const int64_t N = v->of->shape.N, chunk = v->of->chunk_rows;
    return v->of->tight && chunk < N ? (double)((N + chunk - 1) / chunk) : 0;
}

// Below 2^-14 fp16 has steps of 2^-24, and so have factors that are rounded to it on the way.
static void lm_head_small(const mics_case_values *v, const mics_case_numbers *numbers)
{
    for (int64_t i = 0; v->gpu && v->dtype == MICS_DTYPE_FP16 && i < numbers->elems; i++)
        numbers->sum[i] += 16 * 0x1p-24 / numbers->tolerance;
}

static void lm_head_backward(mics_case_values *v)
{
    const int64_t C = v->of->shape.in[0], V = v->of->shape.vocab;
    const double by = v->gpu ? 1 : 2, unit = lm_head_unit(v);
    double terms = 0;
    for (int64_t n = 0; n < v->out.elems; n++) {
        if (v->tokens[n] < 0)
            continue;
        const lm_head_row row = lm_head_sum(v, n);
        const double scale = (double)v->of->loss_scale *
                             (v->of->row_scales != NULL ? (double)v->of->row_scales[n] : 1);
        for (int64_t word = 0; word < V; word++) {
            const double p = exp(lm_head_logit(v, n, word, &terms) - row.log_sum);
            const double hit = word == v->tokens[n], d = scale * (p - hit);
            const double sum = fabs(scale) * (p * by * (1 + row.uncertain) + hit);
            for (int64_t i = 0; i < C; i++) {
                const double x = v->in[0].at[n * C + i], weight = v->params[0].at[word * C + i];
                v->din[0].at[n * C + i] += d * weight;
                v->din[0].sum[n * C + i] += sum * fabs(weight);
                v->dparams[0].at[word * C + i] += d * x;
                v->dparams[0].sum[word * C + i] += sum * fabs(x);
            }
        }
    }
    // The input's sums are over the vocabulary in fp32; rounding grows with the root of its length.
    const double exact = v->gpu ? 4e-6 + 3 * unit : 2 * unit;
    v->din[0].tolerance = exact + (v->gpu ? 0 : MICS_CASE_TOLERANCE * sqrt(1 + (double)V / 4096));
    v->dparams[0].tolerance = exact + (v->gpu ? lm_head_roundings(v) * unit : MICS_CASE_TOLERANCE);
    lm_head_small(v, &v->din[0]);
    lm_head_small(v, &v->dparams[0]);
}

static mics_op_case lm_head_case(const int64_t shape_NCVR[4])
{
    const int64_t N = shape_NCVR[0], C = shape_NCVR[1], V = shape_NCVR[2];
    mics_op_case c = {.op = {.kind = MICS_OP_LM_HEAD}, .chunk_rows = shape_NCVR[3]};
    c.shape = (mics_op_shape){.N = N, .in = {C}, .params = {{V, C}}, .vocab = V};
    return c;
}

static void lm_head_walk(const mics_case_walker *w, mics_op_case c, bool add)
{
    mics_case_forward(w, c);
    c.add_params[0] = add;
    mics_case_backward(w, c);
}

// Scales as of pairs of rows, of both signs, one of them 0; a frozen weight, or none below it that
// trains, or both.
static void lm_head_pairs(const mics_case_walker *w, mics_op_case c)
{
    enum { MOST = 400 };
    static float scales[MOST];
    for (int64_t n = 0; n < c.shape.N && n < MOST; n++)
        scales[n] = (float)(n % 7 - 3) * 0.37F;
    c.row_scales = scales;
    mics_case_forward(w, c);
    for (int frozen = 0; frozen < 4; frozen++) {
        c.without_dparams[0] = c.shape.params_fixed[0] = (frozen & 1) != 0;
        c.without_din = c.shape.in_fixed[0] = (frozen & 2) != 0;
        mics_case_backward(w, c);
    }
}

// ---- on the CPU ----

// Of 100 rows so many count, as chance has it; those of the first chunk never where it is not all.
static void lm_head_some_count(const mics_op_case *c, int32_t *targets_N)
{
    const int64_t N = c->shape.N, rows = c->chunk_rows;
    for (int64_t n = 0; n < N; n++)
        if ((n < rows && rows < N) || mics_rng_bits(3, 3, (uint64_t)n) % 100 >= (uint64_t)c->tokens)
            targets_N[n] = n % 2 ? -1 : -100;
}

// As the descriptor says, with chunks of the case's rows.
static size_t lm_head_cpu_bytes(const mics_op_case *c, mics_dtype dtype)
{
    const int64_t R = c->chunk_rows, V = c->shape.vocab, C = c->shape.in[0];
    const int64_t gemms =
        mics_larger(mics_gemm_floats_bf16(R, V, C),
                    mics_larger(mics_gemm_floats_bf16(R, C, V), mics_gemm_floats_bf16(V, C, R)));
    const int64_t floats =
        dtype == MICS_DTYPE_BF16 ? mics_logits_floats_bf16(R, V) + V * C + gemms : R * V;
    return (size_t)floats * sizeof(float);
}

static void lm_head_cpu_case(const mics_case_walker *w, const int64_t shape[4], double spread,
                             bool add, int32_t counted)
{
    mics_op_case c = lm_head_case(shape);
    c.scale[0] = spread;
    c.loss_scale = 0.3F;
    c.tokens = counted;
    c.set_tokens = counted < 100 ? lm_head_some_count : NULL;
    c.workspace_bytes = lm_head_cpu_bytes(&c, w->dtype);
    // The derivatives of steep rows are too large for differences.
    c.samples = spread >= 10 ? 0 : c.shape.vocab > 10000 ? 1 : c.shape.vocab > 1000 ? 2 : 8;
    lm_head_walk(w, c, add);
    if (counted == 60)
        lm_head_pairs(w, c);
}

// Few rows count, which are gathered; most, which are not; and none.
static void lm_head_cpu(const mics_case_walker *w)
{
    static const int64_t shapes[][4] = {// N, C, V, rows of a chunk
                                        {1, 1, 1, 1},      {3, 2, 1, 2},     {1, 5, 7, 1},
                                        {5, 3, 2, 2},      {17, 17, 7, 4},   {63, 5, 65, 64},
                                        {64, 63, 127, 64}, {65, 64, 64, 17}, {130, 17, 130, 33},
                                        {2, 65, 3, 5},     {7, 3, 4099, 3}};
    static const int64_t some[][4] = {{1, 1, 1, 1},      {5, 3, 2, 2},     {63, 5, 65, 64},
                                      {64, 63, 127, 64}, {65, 64, 64, 17}, {130, 17, 131, 33},
                                      {40, 9, 40, 40},   {7, 3, 4099, 3}};
    static const int64_t large[4] = {5, 7, 50257, 2};
    // Logits far beyond what an exponential in fp32 can hold.
    static const int64_t steep[4] = {9, 17, 65, 4};
    static const int32_t shares[] = {0, 15, 60, 97};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int add = 0; add < 2; add++)
            lm_head_cpu_case(w, shapes[i], 1, add, 100);
    lm_head_cpu_case(w, large, 1, false, 100);
    lm_head_cpu_case(w, steep, 300, false, 100);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int share = 0; share < 4; share++)
            lm_head_cpu_case(w, some[i], 1, share % 2, shares[share]);
    lm_head_cpu_case(w, steep, 300, false, 50);
}

// ---- on a GPU ----

enum { LM_HEAD_ALL, LM_HEAD_SOME, LM_HEAD_NONE };

static void lm_head_targets(const mics_op_case *c, int32_t *targets_N)
{
    for (int64_t n = 0; n < c->shape.N; n++) {
        targets_N[n] = (int32_t)(n * 7919 % c->shape.vocab);
        if (c->tokens == LM_HEAD_NONE || (c->tokens == LM_HEAD_SOME && n % 3 != 1))
            targets_N[n] = n % 2 ? -1 : -100;
    }
}

// Without a budget for the weight's sum in fp32, GEMMs do with less than they would like.
static mics_op_case lm_head_gpu_shape(const mics_case_walker *w, const int64_t shape[4], bool tight,
                                      int32_t counted)
{
    mics_op_case c = lm_head_case(shape);
    const int64_t N = c.shape.N, V = c.shape.vocab, chunk = c.chunk_rows;
    const int64_t elem = (int64_t)mics_dtype_bytes(w->dtype), row = (V * elem + 15) / 16 * 16;
    const int64_t logits = mics_part_floats(row * mics_smaller(chunk, N)) * (int64_t)sizeof(float);
    const bool summed = w->dtype != MICS_DTYPE_FP32 && chunk < N;
    const int64_t sum = summed ? mics_part_floats(V * c.shape.in[0] * (int64_t)sizeof(float)) *
                                     (int64_t)sizeof(float)
                               : 0;
    c.workspace_bytes = (size_t)(tight ? logits + 4096 : logits + sum + MICS_GEMM_BYTES);
    c.tight = tight;
    c.loss_scale = 0.75F;
    c.tokens = counted;
    c.set_tokens = lm_head_targets;
    return c;
}

static void lm_head_gpu_case(const mics_case_walker *w, const int64_t shape[4], bool add,
                             bool tight, int32_t counted)
{
    lm_head_walk(w, lm_head_gpu_shape(w, shape, tight, counted), add);
}

// A third of the rows count, and no others go through GEMMs: in one chunk, in several, and where
// several would round the weight's gradient too often.
static void lm_head_gpu_gathered(const mics_case_walker *w)
{
    static const int64_t shapes[][4] = {{300, 24, 96, 300}, {390, 9, 65, 100}};
    for (int i = 0; i < 4; i++) {
        for (int32_t counted = LM_HEAD_SOME; counted <= LM_HEAD_NONE; counted++) {
            mics_op_case c = lm_head_gpu_shape(w, shapes[i / 2], i % 2 == 1, counted);
            c.counted = true;
            lm_head_walk(w, c, i % 2 == 1);
            if (i % 2 == 0 && counted == LM_HEAD_SOME)
                lm_head_pairs(w, c);
        }
    }
}

static void lm_head_gpu(const mics_case_walker *w)
{
    // N, C, V, rows of a chunk; the last: a block a row.
    static const int64_t shapes[][4] = {{1, 1, 1, 1},      {5, 8, 17, 2},     {33, 16, 50, 7},
                                        {64, 40, 257, 64}, {64, 24, 96, 100}, {20, 33, 301, 8},
                                        {7, 8, 1500, 3}};
    for (int i = 0; i < 6; i++) {
        for (int add = 0; add < 2; add++) {
            lm_head_gpu_case(w, shapes[i], add, false, LM_HEAD_ALL);
            if (w->dtype != MICS_DTYPE_FP32 && i % 2 == 1)
                lm_head_gpu_case(w, shapes[i], add, true, LM_HEAD_ALL);
        }
        lm_head_gpu_case(w, shapes[i], i % 2, false, i % 3 == 2 ? LM_HEAD_NONE : LM_HEAD_SOME);
    }
    lm_head_gpu_case(w, shapes[6], false, false, LM_HEAD_SOME);
    lm_head_gpu_gathered(w);
}

static const mics_op_cases lm_head_cases = {MICS_OP_LM_HEAD, lm_head_cpu, lm_head_gpu,
                                            lm_head_forward, lm_head_backward};
