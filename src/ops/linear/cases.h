// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of linears: both orders of weights, with and without bias.
#pragma once

#include "ops/common/cases.h"

static inline int64_t linear_weight(const mics_case_values *v, int64_t i, int64_t o)
{
    const mics_op_shape *s = &v->of->shape;
    return v->of->op.weight_out_in ? o * s->in[0] + i : i * s->out + o;
}

// On a GPU: of fp32 sums; where a kernel of its own adds the bias, the GEMM is rounded before.
static inline double linear_tolerance(const mics_case_values *v, bool rounded)
{
    if (!v->gpu)
        return MICS_CASE_TOLERANCE;
    return 2e-6 + (rounded ? mics_case_unit(v->dtype) : 0);
}

static inline void linear_forward(mics_case_values *v)
{
    const int64_t I = v->of->shape.in[0], O = v->of->shape.out;
    for (int64_t at = 0; at < v->out.elems; at++) {
        const int64_t n = at / O, o = at % O;
        double sum = v->params[1].at ? v->params[1].at[o] : 0, terms = fabs(sum);
        for (int64_t i = 0; i < I; i++) {
            const double term = v->in[0].at[n * I + i] * v->params[0].at[linear_weight(v, i, o)];
            sum += term;
            terms += fabs(term);
        }
        v->out.at[at] = sum;
        v->out.sum[at] = terms;
    }
    v->out.tolerance = linear_tolerance(v, v->params[1].at != NULL);
}

static inline void linear_backward(mics_case_values *v)
{
    const int64_t I = v->of->shape.in[0], O = v->of->shape.out;
    for (int64_t at = 0; at < v->out.elems; at++) {
        const int64_t n = at / O, o = at % O;
        const double dy = v->dout.at[at];
        mics_case_add(&v->dparams[1], o, dy);
        for (int64_t i = 0; i < I; i++) {
            const int64_t weight = linear_weight(v, i, o);
            mics_case_add(&v->din[0], n * I + i, dy * v->params[0].at[weight]);
            mics_case_add(&v->dparams[0], weight, dy * v->in[0].at[n * I + i]);
        }
    }
    v->din[0].tolerance = v->dparams[0].tolerance = v->dparams[1].tolerance =
        linear_tolerance(v, false);
}

static inline mics_op_case linear_case(const int64_t shape_NIO[3], bool out_in, bool bias)
{
    const int64_t N = shape_NIO[0], I = shape_NIO[1], O = shape_NIO[2];
    mics_op_case c = {.op = {.kind = MICS_OP_LINEAR, .weight_out_in = out_in}};
    c.shape = (mics_op_shape){.N = N, .in = {I}, .out = O};
    c.shape.params[0][0] = out_in ? O : I;
    c.shape.params[0][1] = out_in ? I : O;
    c.shape.params[1][0] = bias ? O : 0;
    c.samples = N * I * O > 100000 ? 1 : 3;
    return c;
}

enum { LINEAR_ADD_DIN = 1, LINEAR_ADD_PARAMS = 2, LINEAR_NO_DIN = 4, LINEAR_NO_DBIAS = 8 };

static inline void linear_flags(const mics_case_walker *w, mics_op_case c, int flags)
{
    c.add_din = flags & LINEAR_ADD_DIN;
    c.add_params[0] = c.add_params[1] = flags & LINEAR_ADD_PARAMS;
    c.without_din = flags & LINEAR_NO_DIN;
    c.without_dparams[1] = flags & LINEAR_NO_DBIAS;
    mics_case_backward(w, c);
}

static inline void linear_cpu(const mics_case_walker *w)
{
    static const int64_t shapes[][3] = {// N, I, O
                                        {1, 1, 1},     {1, 5, 3},     {2, 1, 17},  {3, 63, 2},
                                        {5, 64, 65},   {15, 3, 127},  {16, 17, 1}, {17, 65, 64},
                                        {63, 2, 5},    {64, 127, 63}, {65, 5, 17}, {127, 17, 3},
                                        {130, 63, 130}};
    static const int64_t all_flags[3] = {19, 6, 33};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
        for (int order = 0; order < 2; order++) {
            mics_case_forward(w, linear_case(shapes[i], order, true));
            mics_case_forward(w, linear_case(shapes[i], order, false));
            for (int j = 0; j < 4; j++)
                linear_flags(w, linear_case(shapes[i], order, true), (i * 5) % 16 ^ j);
        }
    for (int flags = 0; flags < 16; flags++)
        linear_flags(w, linear_case(all_flags, flags % 2, true), flags);
}

// N, I, O: multiples of 8, for which there are all epilogues, and others.
static const int64_t LINEAR_GPU[][3] = {{1, 1, 1},    {3, 5, 7},  {16, 64, 48},
                                        {65, 40, 33}, {5, 8, 24}, {64, 72, 80},
                                        {130, 9, 16}, {7, 33, 8}, {600, 16, 24}};
enum { LINEAR_GPU_COUNT = sizeof LINEAR_GPU / sizeof *LINEAR_GPU };

// Less than GEMMs would like, and more than sums of rows need here.
enum { LINEAR_GPU_WORKSPACE = 1 << 16 };

static inline void linear_gpu(const mics_case_walker *w)
{
    static const int flags[] = {0, LINEAR_ADD_DIN | LINEAR_ADD_PARAMS, LINEAR_ADD_DIN,
                                LINEAR_NO_DIN, LINEAR_ADD_PARAMS | LINEAR_NO_DBIAS};
    for (int i = 0; i < LINEAR_GPU_COUNT; i++)
        for (int order = 0; order < 2; order++) {
            mics_op_case c = linear_case(LINEAR_GPU[i], order, false);
            c.workspace_bytes = LINEAR_GPU_WORKSPACE;
            mics_case_forward(w, c);
            c.shape.params[1][0] = c.shape.out;
            mics_case_forward(w, c);
            for (int k = 0; k < 5; k++)
                linear_flags(w, c, flags[k]);
        }
}

static const mics_op_cases linear_cases = {MICS_OP_LINEAR, linear_cpu, linear_gpu, linear_forward,
                                           linear_backward};
