// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of the embedding, with and without positions. Its gradient is plain counting, so
// differences would add nothing.
#pragma once

#include "ops/common/cases.h"

// Elements of the two tables that element `i` of the output is of.
static int64_t embedding_word(const mics_case_values *v, int64_t i)
{
    const int64_t C = v->of->shape.out;
    return v->tokens[i / C] * C + i % C;
}

static int64_t embedding_position(const mics_case_values *v, int64_t i)
{
    const int64_t C = v->of->shape.out, t = i / C % v->of->shape.T;
    const int32_t begin = v->of->segments != NULL ? v->of->segments[i / C] : 0;
    return (begin < 0 ? 0 : t - begin) * C + i % C;
}

static void embedding_forward(mics_case_values *v)
{
    const bool positions = v->params[1].at != NULL;
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double a = v->params[0].at[embedding_word(v, i)];
        const double b = positions ? v->params[1].at[embedding_position(v, i)] : 0;
        v->out.at[i] = a + b;
        v->out.sum[i] = fabs(a) + fabs(b);
    }
    v->out.tolerance = positions ? MICS_CASE_TOLERANCE : 0;
}

static void embedding_backward(mics_case_values *v)
{
    for (int64_t i = 0; i < v->out.elems; i++) {
        mics_case_add(&v->dparams[0], embedding_word(v, i), v->dout.at[i]);
        mics_case_add(&v->dparams[1], embedding_position(v, i), v->dout.at[i]);
    }
}

// 1: all alike; 2: each another; else each so often in a row.
static void embedding_tokens(const mics_op_case *c, int32_t *tokens_N)
{
    const int64_t V = c->shape.vocab;
    for (int64_t n = 0; n < c->shape.N && c->tokens > 0; n++)
        tokens_N[n] = (int32_t)(c->tokens == 1   ? V / 2
                                : c->tokens == 2 ? n * 7 % V
                                                 : (n + 5) / c->tokens % V);
}

static mics_op_case embedding_case(int64_t N, int64_t T, int64_t C, int64_t V, bool positions)
{
    mics_op_case c = {.op = {.kind = MICS_OP_EMBEDDING}};
    c.shape = (mics_op_shape){.B = N / T, .T = T, .N = N, .out = C, .vocab = V, .positions = T + 3};
    c.shape.params[0][0] = V;
    c.shape.params[0][1] = c.shape.params[1][1] = C;
    c.shape.params[1][0] = positions ? T + 3 : 0;
    return c;
}

static void embedding_flags(const mics_case_walker *w, mics_op_case c, int flags)
{
    c.add_params[0] = flags & 2;
    c.add_params[1] = flags & 4;
    mics_case_backward(w, c);
}

// Positions that restart in segments of three tokens, and behind them what is of none.
static void embedding_segments(const mics_case_walker *w, mics_op_case c)
{
    enum { MOST = 1024, EACH = 3 };
    int32_t segments[MOST];
    const int64_t T = c.shape.T;
    if (c.shape.params[1][0] == 0 || c.shape.N > MOST)
        return;
    for (int64_t n = 0; n < c.shape.N; n++)
        segments[n] = n % T > 1 && n % T + 2 >= T ? -1 : (int32_t)(n % T / EACH * EACH);
    c.segments = segments;
    c.op.segments = true;
    mics_case_forward(w, c);
    mics_case_backward(w, c);
    c.add_params[1] = true;
    mics_case_backward(w, c);
}

static void embedding_cpu(const mics_case_walker *w)
{
    static const int64_t shapes[][4] = {// B, T, C, V
                                        {1, 1, 1, 1},   {1, 1, 5, 1},    {2, 3, 17, 7},
                                        {3, 5, 63, 2},  {1, 17, 64, 9},  {2, 63, 65, 130},
                                        {5, 2, 127, 3}, {4, 65, 130, 11}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int flags = 0; flags < 8; flags++) {
            const int64_t *s = shapes[i];
            const mics_op_case c = embedding_case(s[0] * s[1], s[1], s[2], s[3], flags & 1);
            if (flags < 2)
                mics_case_forward(w, c);
            embedding_flags(w, c, flags);
            if (flags == 1)
                embedding_segments(w, c);
        }
}

static void embedding_gpu(const mics_case_walker *w)
{
    // N, T, C, V, offset, tokens; N need not be a multiple of T: the last sequence may be short.
    static const int64_t shapes[][6] = {
        {1, 1, 1, 1, 0, 0},      {6, 3, 17, 7, 0, 0},     {15, 5, 8, 2, 0, 0},
        {17, 17, 64, 9, 0, 2},   {21, 10, 64, 30, 1, 0},  {65, 16, 264, 5, 0, 0},
        {300, 32, 16, 3, 0, 1},  {9, 4, 130, 11, 0, 2},   {600, 7, 8, 2, 0, 0},
        {4, 4, 2100, 6, 0, 0},   {31, 8, 40, 3, 0, 1},    {200, 50, 264, 9, 0, 30},
        {200, 50, 16, 9, 0, 31}, {200, 50, 16, 9, 0, 32}, {30, 30, 5, 1, 0, 1}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        for (int flags = 0; flags < 8; flags++) {
            const int64_t *s = shapes[i];
            mics_op_case c = embedding_case(s[0], s[1], s[2], s[3], flags & 1);
            c.offset = s[4];
            if (flags < 2)
                mics_case_forward(w, c);
            if (flags == 1)
                embedding_segments(w, c);
            c.tokens = (int32_t)s[5];
            c.set_tokens = embedding_tokens;
            if (flags == 0 || flags == 7 || (flags + i) % 3 == 0)
                embedding_flags(w, c, flags);
        }
}

static const mics_op_cases embedding_cases = {MICS_OP_EMBEDDING, embedding_cpu, embedding_gpu,
                                              embedding_forward, embedding_backward};
