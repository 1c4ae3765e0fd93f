// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Heads turned by their position: numbers i and dims / 2 + i of a head are a pair. Backward turns
// the other way. A position's sines and cosines are computed once for all heads of all sequences.
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"
#include <string.h>

enum { PAIRS = 64 }; // that turn at a time

// Cosines and sines of one position, of the pairs from `first` on.
typedef struct turns {
    float cosine[PAIRS], sine[PAIRS];
    int64_t first, count;
} turns;

// One pass: from (N, W) to (N, W), W = (Q + 2 K) D.
typedef struct rotation {
    mics_elem *to;
    const mics_elem *from;
    const mics_rotary_spec *by;
    mics_heads heads;
    bool back, add;
} rotation;

static void find_turns(turns *t, const rotation *r, int64_t position)
{
    const float *frequencies = r->by->frequencies + t->first;
    const float scale = r->by->scale, sign = r->back ? -scale : scale, at = (float)position;
#pragma omp simd
    for (int64_t i = 0; i < t->count; ++i) {
        float sine, cosine;
        mics_sincos(at * frequencies[i], &sine, &cosine);
        t->cosine[i] = cosine * scale;
        t->sine[i] = sine * sign;
    }
}

// `to` may be `from`.
static void turn_head(mics_elem *to, const mics_elem *from, const turns *t, int64_t half, bool add)
{
    const mics_elem *a = from + t->first, *b = a + half;
    mics_elem *to_a = to + t->first, *to_b = to_a + half;
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < t->count; ++i) {
            const float of_a = mics_load(a[i]), of_b = mics_load(b[i]);
            to_a[i] = mics_store(mics_load(to_a[i]) + (of_a * t->cosine[i] - of_b * t->sine[i]));
            to_b[i] = mics_store(mics_load(to_b[i]) + (of_b * t->cosine[i] + of_a * t->sine[i]));
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < t->count; ++i) {
            const float of_a = mics_load(a[i]), of_b = mics_load(b[i]);
            to_a[i] = mics_store(of_a * t->cosine[i] - of_b * t->sine[i]);
            to_b[i] = mics_store(of_b * t->cosine[i] + of_a * t->sine[i]);
        }
    }
}

static void pass_on(mics_elem *to, const mics_elem *from, int64_t elems, bool add)
{
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            to[i] = mics_store(mics_load(to[i]) + mics_load(from[i]));
    } else if (to != from) {
        memcpy(to, from, (size_t)elems * sizeof *to);
    }
}

// What does not turn of a token's row: the ends of heads, and values.
static void pass_rest(const rotation *r, int64_t row)
{
    const int64_t D = r->heads.dim, dims = r->by->dims, W = mics_heads_width(r->heads);
    const int64_t turned = r->heads.query + r->heads.key_value;
    mics_elem *to = r->to + row * W;
    const mics_elem *from = r->from + row * W;
    for (int64_t h = 0; dims < D && h < turned; ++h)
        pass_on(to + h * D + dims, from + h * D + dims, D - dims, r->add);
    pass_on(to + turned * D, from + turned * D, r->heads.key_value * D, r->add);
}

// The tokens of all sequences that stand in one place.
static void turn_position(const rotation *r, int64_t row, int64_t position, int64_t B, int64_t T)
{
    const int64_t D = r->heads.dim, half = r->by->dims / 2, W = mics_heads_width(r->heads);
    const int64_t turned = r->heads.query + r->heads.key_value;
    turns t;
    for (t.first = 0; t.first < half; t.first += PAIRS) {
        t.count = half - t.first < PAIRS ? half - t.first : PAIRS;
        find_turns(&t, r, position);
        for (int64_t b = 0; b < B; ++b)
            for (int64_t h = 0; h < turned; ++h) {
                const int64_t at = (b * T + row) * W + h * D;
                turn_head(r->to + at, r->from + at, &t, half, r->add);
            }
    }
    for (int64_t b = 0; b < B; ++b)
        pass_rest(r, b * T + row);
}

static void run(const mics_op_call *call, const rotation *r)
{
    const int64_t B = call->shape.B, T = call->shape.T;
#pragma omp parallel for if (B * T * mics_heads_width(r->heads) >= MICS_OP_PARALLEL)
    for (int64_t t = 0; t < T; ++t)
        turn_position(r, t, call->position + t, B, T);
}

static void forward(const mics_op_call *call)
{
    const rotation r = {
        .to = call->out, .from = call->in[0], .by = call->shape.rotary, .heads = call->shape.heads};
    run(call, &r);
}

static void backward(const mics_op_call *call)
{
    const rotation r = {.to = call->din,
                        .from = call->dout,
                        .by = call->shape.rotary,
                        .heads = call->shape.heads,
                        .back = true,
                        .add = call->add_din};
    run(call, &r);
}

const mics_op_kernels MICS_OP(rotary_kernels) = {
    .forward = forward, .backward = backward, .decode = forward};
