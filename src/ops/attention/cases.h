// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of attention, causal and both ways, with shared keys, windows, segments and dropout, against
// the plain one with all scores.
#pragma once

#include "ops/attention/pairs.h"
#include "ops/common/cases.h"
#include "ops/common/cases_masks.h"
#include <assert.h>
#include <stdlib.h>

enum { ATTENTION_MAX_LENGTH = 512 };

// A query head of a token.
typedef struct attention_at {
    int64_t b, h, t;
} attention_at;

// Its probabilities. `doubt`: absolute terms of its largest score, in which the error of its
// exponentials is measured.
typedef struct attention_scores {
    double p[ATTENTION_MAX_LENGTH], log_sum, lse, doubt;
} attention_scores;

// The query of a head (part 0), or the key (1) or value (2) of token s that it reads.
static inline int64_t attention_part(const mics_case_values *v, attention_at at, int64_t s,
                                     int which)
{
    const mics_heads heads = v->of->op.heads;
    const int64_t K = heads.key_value, kv = at.h / (heads.query / K);
    const int64_t head = which == 0 ? at.h : heads.query + (which - 1) * K + kv;
    return (at.b * v->of->shape.T + s) * mics_heads_width(heads) + head * heads.dim;
}

// Where a head's numbers begin in the output, in heads.
static inline int64_t attention_head(const mics_case_values *v, attention_at at)
{
    return (at.b * v->of->shape.T + at.t) * v->of->op.heads.query + at.h;
}

// Whether its token sees token s.
static inline bool attention_sees(const mics_case_values *v, attention_at at, int64_t s)
{
    const mics_op *op = &v->of->op;
    const int32_t *segments = v->of->segments ? v->of->segments + at.b * v->of->shape.T : NULL;
    if (segments != NULL && segments[at.t] != segments[s])
        return false;
    if (op->both_ways)
        return op->window == 0 || llabs(at.t - s) <= op->window / 2;
    return s <= at.t && (op->window == 0 || s > at.t - op->window);
}

// What dropout multiplies the probability of key s by.
static inline double attention_kept(const mics_case_values *v, attention_at at, int64_t s)
{
    return mask_factor(v->of->draws ? &v->of->draw : NULL, v->of->op.dropout,
                       v->of->op.mask + (uint32_t)at.h, at.b, at.t, s);
}

static inline double attention_dot(const double *a, const double *b, int64_t elems, double *terms)
{
    double sum = 0;
    *terms = 0;
    for (int64_t i = 0; i < elems; i++) {
        sum += a[i] * b[i];
        *terms += fabs(a[i] * b[i]);
    }
    return sum;
}

static inline void attention_score(const mics_case_values *v, attention_at at, attention_scores *of)
{
    const int64_t T = v->of->shape.T, D = v->of->op.heads.dim;
    const double *q = v->in[0].at + attention_part(v, at, at.t, 0), scale = 1 / sqrt((double)D);
    double highest = -(double)INFINITY, sum = 0, terms = 0;
    assert(T <= ATTENTION_MAX_LENGTH);
    of->doubt = 0;
    for (int64_t s = 0; s < T; s++) {
        of->p[s] = -(double)INFINITY;
        if (!attention_sees(v, at, s))
            continue;
        of->p[s] = attention_dot(q, v->in[0].at + attention_part(v, at, s, 1), D, &terms) * scale;
        highest = fmax(highest, of->p[s]);
        of->doubt = fmax(of->doubt, terms * scale);
    }
    for (int64_t s = 0; s < T; s++)
        sum += exp(of->p[s] - highest);
    of->log_sum = log(sum);
    of->lse = highest + of->log_sum;
    for (int64_t s = 0; s < T; s++)
        of->p[s] = exp(of->p[s] - of->lse);
}

// How much larger errors are where scores are; on a GPU that is in the tolerance.
static inline double attention_doubt(const mics_case_values *v, const attention_scores *of,
                                     double least)
{
    return v->gpu ? 1 : least + 2 * of->doubt;
}

static inline void attention_out(const mics_case_values *v, attention_at at,
                                 const attention_scores *of)
{
    const int64_t D = v->of->op.heads.dim, head = attention_head(v, at);
    double *y = v->out.at + head * D, *sum = v->out.sum + head * D;
    memset(y, 0, (size_t)D * sizeof *y);
    memset(sum, 0, (size_t)D * sizeof *sum);
    for (int64_t s = 0; s < v->of->shape.T; s++) {
        if (of->p[s] == 0)
            continue;
        const double seen = of->p[s] * attention_kept(v, at, s);
        const double *value = v->in[0].at + attention_part(v, at, s, 2);
        for (int64_t d = 0; d < D; d++) {
            y[d] += seen * value[d];
            sum[d] += seen * fabs(value[d]) * attention_doubt(v, of, 1);
        }
    }
}

static inline attention_at attention_of(const mics_case_values *v, int64_t head)
{
    const int64_t T = v->of->shape.T, H = v->of->op.heads.query;
    return (attention_at){head / H / T, head % H, head / H % T};
}

// On a GPU: what remains of exponentials, products and their rounding to the type between two. On a
// CPU probabilities, and gradients of scores, are rounded where bf16 is multiplied in pairs.
static inline double attention_tolerance(const mics_case_values *v, double doubt)
{
    const bool pairs =
        v->dtype == MICS_DTYPE_BF16 && mics_attention_pairs_for(v->of->op.heads.dim) != NULL;
    if (!v->gpu)
        return MICS_CASE_TOLERANCE + (pairs ? mics_case_unit(v->dtype) : 0);
    return 1e-6 * doubt + (v->dtype == MICS_DTYPE_FP32 ? 0 : 2 * mics_case_unit(v->dtype));
}

static inline void attention_forward(mics_case_values *v)
{
    attention_scores scores;
    double doubt = 0;
    for (int64_t head = 0; head < v->stats.elems; head++) {
        const attention_at at = attention_of(v, head);
        attention_score(v, at, &scores);
        attention_out(v, at, &scores);
        doubt = fmax(doubt, 1 + scores.doubt);
        v->stats.at[head] = scores.lse;
        v->stats.sum[head] = v->gpu ? 1 + scores.doubt : 1 + 2 * scores.doubt + scores.log_sum;
    }
    v->out.tolerance = attention_tolerance(v, doubt);
    v->stats.tolerance = v->gpu ? 2e-6 : MICS_CASE_TOLERANCE;
}

static inline void attention_add(const mics_case_numbers *to, int64_t begin, const double *from,
                                 int64_t elems, double by, double terms)
{
    for (int64_t i = 0; i < elems; i++) {
        to->at[begin + i] += by * from[i];
        to->sum[begin + i] += terms * fabs(from[i]);
    }
}

// With f what dropout multiplies by: dv += p f dy; ds = p (f dy . v - dy . y) scale; dq += ds k;
// dk += ds q.
static inline void attention_gradient(const mics_case_values *v, attention_at at,
                                      const attention_scores *of)
{
    const int64_t D = v->of->op.heads.dim, head = attention_head(v, at);
    const int64_t query = attention_part(v, at, at.t, 0);
    const double *dy = v->dout.at + head * D, *qkv = v->in[0].at, scale = 1 / sqrt((double)D);
    const double doubt = attention_doubt(v, of, 2);
    double delta_sum = 0, terms = 0, dp_terms = 0;
    const double delta = attention_dot(dy, v->out.at + head * D, D, &terms);
    attention_dot(dy, v->out.sum + head * D, D, &delta_sum);
    for (int64_t s = 0; s < v->of->shape.T; s++) {
        if (of->p[s] == 0)
            continue;
        const int64_t key = attention_part(v, at, s, 1), value = attention_part(v, at, s, 2);
        const double f = attention_kept(v, at, s), p = of->p[s];
        const double dp = f * attention_dot(dy, qkv + value, D, &dp_terms);
        const double ds = p * (dp - delta) * scale;
        const double ds_sum = p * (f * dp_terms + delta_sum) * scale * doubt;
        attention_add(&v->din[0], query, qkv + key, D, ds, ds_sum);
        attention_add(&v->din[0], key, qkv + query, D, ds, ds_sum);
        attention_add(&v->din[0], value, dy, D, p * f, p * f * doubt);
    }
}

static inline void attention_backward(mics_case_values *v)
{
    attention_scores scores;
    for (int64_t head = 0; head < v->stats.elems; head++) {
        const attention_at at = attention_of(v, head);
        attention_score(v, at, &scores);
        attention_gradient(v, at, &scores);
    }
    // In bf16 on the CPU the output that delta is made of was rounded.
    v->din[0].tolerance =
        v->gpu ? 2 * v->out.tolerance
               : v->out.tolerance + (v->dtype == MICS_DTYPE_BF16 ? mics_case_unit(v->dtype) : 0);
}

// ---- shapes ----

typedef struct attention_shape {
    int64_t B, T;
    mics_heads heads;
    int64_t window;
    bool both_ways;
    const int32_t *segments; // (B, T)
} attention_shape;

static inline mics_op_case attention_case(const attention_shape *s)
{
    mics_op_case c = {.op = {.kind = MICS_OP_ATTENTION,
                             .heads = s->heads,
                             .window = s->window,
                             .both_ways = s->both_ways,
                             .segments = s->segments != NULL}};
    const int64_t W = mics_heads_width(s->heads);
    c.shape = (mics_op_shape){.B = s->B, .T = s->T, .N = s->B * s->T, .in = {W}};
    c.shape.out = s->heads.query * s->heads.dim;
    c.shape.heads = s->heads;
    c.segments = s->segments;
    c.samples = s->T > 60 ? 1 : 3;
    return c;
}

static inline mics_op_case attention_dropped(mics_op_case c, float probability, uint32_t mask)
{
    c.op.dropout = probability;
    c.op.mask = mask;
    c.draws = true;
    c.draw = mask_draw(mics_rng_bits(9, 9, 9), 1000);
    return c;
}

static inline void attention_both(const mics_case_walker *w, mics_op_case c)
{
    mics_case_forward(w, c);
    mics_case_backward(w, c);
}

// ---- on the CPU ----

// Each head dimension and each T around the borders of tiles and vectors. Keys that several query
// heads read, and windows: inside a tile, of a whole one, across borders, as long as a sequence and
// longer.
static const attention_shape ATTENTION_CPU[] = {
    {.B = 1, .T = 1, .heads = {1, 1, 1}},
    {.B = 2, .T = 1, .heads = {3, 3, 8}},
    {.B = 1, .T = 2, .heads = {2, 2, 3}},
    {.B = 3, .T = 3, .heads = {1, 1, 1}},
    {.B = 2, .T = 5, .heads = {3, 3, 40}},
    {.B = 1, .T = 17, .heads = {2, 2, 64}},
    {.B = 1, .T = 63, .heads = {1, 1, 3}},
    {.B = 2, .T = 64, .heads = {2, 2, 8}},
    {.B = 1, .T = 65, .heads = {3, 3, 1}},
    {.B = 1, .T = 127, .heads = {2, 2, 40}},
    {.B = 2, .T = 128, .heads = {1, 1, 17}},
    {.B = 1, .T = 130, .heads = {2, 2, 80}},
    {.B = 1, .T = 66, .heads = {1, 1, 64}},
    {.B = 1, .T = 70, .heads = {1, 1, 128}},
    {.B = 1, .T = 200, .heads = {2, 2, 64}},
    {.B = 1, .T = 257, .heads = {1, 1, 5}},
    {.B = 3, .T = 33, .heads = {2, 2, 16}},
    {.B = 1, .T = 1, .heads = {6, 2, 40}, .window = 3},
    {.B = 2, .T = 9, .heads = {5, 1, 40}},
    {.B = 2, .T = 70, .heads = {6, 2, 40}},
    {.B = 1, .T = 130, .heads = {4, 2, 8}},
    {.B = 1, .T = 66, .heads = {6, 3, 17}, .window = 1},
    {.B = 2, .T = 70, .heads = {6, 2, 40}, .window = 3},
    {.B = 1, .T = 200, .heads = {1, 1, 5}, .window = 64},
    {.B = 1, .T = 200, .heads = {2, 1, 64}, .window = 65},
    {.B = 1, .T = 257, .heads = {2, 2, 8}, .window = 130},
    {.B = 1, .T = 193, .heads = {3, 3, 16}, .window = 63},
    {.B = 1, .T = 65, .heads = {2, 1, 3}, .window = 65},
    {.B = 1, .T = 65, .heads = {2, 1, 3}, .window = 1000},
};
enum { ATTENTION_CPU_COUNT = sizeof ATTENTION_CPU / sizeof *ATTENTION_CPU };

// Every length of a sequence around what a tile and a vector hold.
static inline void attention_lengths(const mics_case_walker *w)
{
    for (int64_t T = 1; T <= 70; T++) {
        const int64_t window = T % 3 ? T / 2 : 0;
        const attention_shape plain = {1, T, {3, T % 2 ? 1 : 3, 8}, window, false, NULL};
        const attention_shape dropped = {2, T, {2, T % 2 ? 1 : 2, 4}, window, false, NULL};
        attention_both(w, attention_case(&plain));
        attention_both(w, attention_dropped(attention_case(&dropped), 0.1F, 21));
    }
}

// Segments of the sequences.
typedef enum attention_segments {
    ATTENTION_DOCUMENTS, // one behind the other, of 1 token and more
    ATTENTION_PADDING,   // one and what is behind it
    ATTENTION_SHUFFLED,  // as chance has it
    ATTENTION_SEGMENTS
} attention_segments;

static inline void attention_segmented(const mics_case_walker *w, attention_shape s, int how,
                                       mics_op_case like)
{
    int32_t segments[ATTENTION_MAX_LENGTH];
    assert(s.B * s.T <= ATTENTION_MAX_LENGTH);
    for (int64_t b = 0; b < s.B; b++) {
        int32_t document = 0;
        for (int64_t t = 0; t < s.T; t++) {
            const uint64_t bits = mics_rng_bits(7, (uint64_t)(b * 100 + how), (uint64_t)t);
            document += t > 0 && bits % 37 == 0;
            segments[b * s.T + t] = how == ATTENTION_DOCUMENTS ? document
                                    : how == ATTENTION_PADDING
                                        ? (t < s.T * (b + 1) / (s.B + 1) ? 0 : -1)
                                        : (int32_t)(bits % 3);
        }
    }
    s.segments = segments;
    const mics_op_case c = attention_case(&s);
    attention_both(w, like.draws ? attention_dropped(c, like.op.dropout, like.op.mask) : c);
}

// Both ways, with and without a window, and all with segments.
static inline void attention_sights(const mics_case_walker *w)
{
    static const int64_t windows[] = {0, 1, 2, 3, 64, 65, 127, 128, 129, 400};
    const mics_op_case none = {.draws = false};
    for (int i = 0; i < ATTENTION_CPU_COUNT; i++) {
        attention_shape s = ATTENTION_CPU[i];
        attention_segmented(w, s, i % ATTENTION_SEGMENTS, none);
        s.both_ways = true;
        mics_op_case c = attention_case(&s);
        c = i % 2 ? attention_dropped(c, 0.1F, 21) : c;
        attention_both(w, c);
        attention_segmented(w, s, (i + 1) % ATTENTION_SEGMENTS, c);
    }
    for (int i = 0; i < 10; i++)
        for (int how = 0; how < ATTENTION_SEGMENTS; how++) {
            const bool both_ways = how != ATTENTION_SHUFFLED;
            const attention_shape s = {2, 200, {2, 1, 4}, windows[i], both_ways, NULL};
            attention_segmented(w, s, how, none);
        }
}

static inline void attention_cpu(const mics_case_walker *w)
{
    const attention_shape steep[] = {{.B = 1, .T = 130, .heads = {1, 1, 16}},
                                     {.B = 1, .T = 130, .heads = {2, 1, 16}, .window = 40}};
    for (int i = 0; i < ATTENTION_CPU_COUNT; i++) {
        mics_op_case c = attention_case(&ATTENTION_CPU[i]);
        attention_both(w, c);
        c = i % 3 == 2 ? attention_dropped(c, 0.9F, 3) : attention_dropped(c, 0.1F, 21);
        attention_both(w, c);
        c = attention_dropped(c, 0.1F, 21);
        c.draws = false; // an evaluation
        if (i % 5 == 0)
            mics_case_forward(w, c);
    }
    for (int i = 0; i < 2; i++) { // maxima move between tiles; too steep for differences
        mics_op_case c = attention_case(&steep[i]);
        c.samples = 0;
        c.scale[0] = 20;
        mics_case_forward(w, c);
        c.scale[0] = 5;
        mics_case_backward(w, c);
    }
    attention_lengths(w);
    attention_sights(w);
}

// On a GPU forward and backward run one after the other (tests/cuda/test_cuda_attention.c).
static const mics_op_cases attention_cases = {MICS_OP_ATTENTION, attention_cpu, NULL,
                                              attention_forward, attention_backward};
