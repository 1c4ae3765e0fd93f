// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of rotary position embeddings.
#pragma once

#include "ops/common/cases.h"

// A row of `from` turned by a position, or back. Angles are fp32, as transformers computes them.
static inline void rotary_turn_row(const mics_case_values *v, const mics_case_numbers *to,
                                   const double *from, int64_t row, int64_t position, int sign)
{
    const mics_op_shape *s = &v->of->shape;
    const int64_t W = s->out, D = s->heads.dim, half = s->rotary->dims / 2;
    for (int64_t at = 0; at < W; at++) {
        const int64_t head = at / D, d = at % D, i = row * W + at;
        to->at[i] = from[i];
        to->sum[i] = fabs(from[i]);
        if (head >= s->heads.query + s->heads.key_value || d >= 2 * half)
            continue;
        const float angle = (float)position * s->rotary->frequencies[d % half];
        const double cosine = cos((double)angle) * (double)s->rotary->scale;
        const double sine = sin((double)angle) * (double)s->rotary->scale * sign;
        const double other = d < half ? -from[i + half] : from[i - half];
        to->at[i] = from[i] * cosine + other * sine;
        to->sum[i] = fabs(from[i] * cosine) + fabs(other * sine);
    }
}

static inline void rotary_turn(const mics_case_values *v, const mics_case_numbers *to,
                               const double *from, int sign)
{
    for (int64_t n = 0; n < v->of->shape.N; n++)
        rotary_turn_row(v, to, from, n, n % v->of->shape.T, sign);
}

static inline void rotary_forward(mics_case_values *v)
{
    rotary_turn(v, &v->out, v->in[0].at, 1);
}

static inline void rotary_backward(mics_case_values *v)
{
    rotary_turn(v, &v->din[0], v->dout.at, -1);
}

enum { ROTARY_FREQUENCIES = 256 };

typedef struct rotary_shape {
    int64_t B, T;
    mics_heads heads;
    int64_t dims;
    float scale;
    int64_t offset;
} rotary_shape;

static inline void rotary_frequencies(float frequencies[ROTARY_FREQUENCIES])
{
    for (int i = 0; i < ROTARY_FREQUENCIES; i++)
        frequencies[i] = powf(10000.0F, -(float)i / 64);
}

static mics_op_case rotary_case(const rotary_shape *s, const mics_rotary_spec *spec)
{
    const int64_t W = mics_heads_width(s->heads);
    mics_op_case c = {.op = {.kind = MICS_OP_ROTARY, .heads = s->heads}};
    c.shape = (mics_op_shape){.B = s->B, .T = s->T, .N = s->B * s->T, .in = {W}, .out = W};
    c.shape.heads = s->heads;
    c.shape.rotary = spec;
    c.offset = s->offset;
    c.samples = 20;
    return c;
}

static inline void rotary_walk(const mics_case_walker *w, const rotary_shape *s)
{
    float frequencies[ROTARY_FREQUENCIES];
    const mics_rotary_spec spec = {s->dims, frequencies, s->scale};
    mics_op_case c = rotary_case(s, &spec);
    rotary_frequencies(frequencies);
    mics_case_forward(w, c);
    for (int k = 0; k < 4; k++) {
        c.add_din = k % 2;
        c.in_place = k / 2;
        mics_case_backward(w, c);
    }
}

static inline void rotary_cpu(const mics_case_walker *w)
{
    static const rotary_shape shapes[] = {
        {1, 1, {1, 1, 2}, 2, 1, 0},        {2, 5, {6, 2, 40}, 40, 1, 0},
        {3, 70, {5, 1, 40}, 10, 1.25F, 0}, {1, 33, {3, 3, 17}, 6, 0.5F, 0},
        {2, 64, {4, 2, 64}, 64, 1, 0},     {1, 9, {2, 1, 300}, 270, 1, 0}};
    float frequencies[ROTARY_FREQUENCIES];
    const mics_rotary_spec spec = {4, frequencies, 1};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rotary_walk(w, &shapes[i]);
    rotary_frequencies(frequencies);
    for (int64_t T = 1; T <= 70; T++)
        mics_case_forward(w, rotary_case(&(rotary_shape){2, T, {2, 1, 6}, 4, 1, 0}, &spec));
}

// Whole packs and not, heads that turn in part, and more pairs than a launch takes.
static inline void rotary_gpu(const mics_case_walker *w)
{
    static const rotary_shape shapes[] = {
        {1, 1, {1, 1, 2}, 2, 1, 0},        {2, 5, {6, 2, 40}, 40, 1, 0},
        {2, 33, {5, 1, 64}, 16, 1.25F, 0}, {1, 9, {3, 3, 17}, 6, 0.5F, 0},
        {2, 7, {4, 2, 64}, 64, 1, 1},      {1, 70, {2, 1, 128}, 128, 1, 0},
        {1, 3, {2, 1, 300}, 288, 1, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        rotary_walk(w, &shapes[i]);
}

static const mics_op_cases rotary_cases = {MICS_OP_ROTARY, rotary_cpu, rotary_gpu, rotary_forward,
                                           rotary_backward};
