// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of GELU, by tanh and by erf. Shards begin and end anywhere.
#pragma once

#include "ops/common/cases.h"

static inline double gelu_inner(double x)
{
    return sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x);
}

// (1 + tanh u) / 2 = 1 / (1 + e^-2u), which does not cancel for x < 0.
static inline double gelu_at(double x, bool exact)
{
    if (isinf(x))
        return x > 0 ? x : 0;
    return exact ? 0.5 * x * erfc(-x / sqrt(2.0)) : x / (1 + exp(-2 * gelu_inner(x)));
}

static inline double gelu_slope(double x, bool exact)
{
    if (isinf(x))
        return x > 0 ? 1 : 0;
    if (exact)
        return 0.5 * erfc(-x / sqrt(2.0)) + x * exp(-x * x / 2) / sqrt(2 * acos(-1));
    const double t = tanh(gelu_inner(x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
}

// Rounding of the argument of e^z is an error of |z| units in e^z. On the left, where the sigmoid
// is small, that is an error of |z| units in the result; on the right, it only moves 1 + e^z.
static inline double gelu_rounding(double x, bool exact)
{
    const double argument = exact ? 0.5 * x * x : fabs(2 * gelu_inner(x));
    return 2 + (x < 0 ? argument : 0);
}

static inline double gelu_tolerance(const mics_case_values *v)
{
    return v->gpu && v->dtype != MICS_DTYPE_FP32 ? 4e-6 : MICS_CASE_TOLERANCE;
}

static inline void gelu_forward(mics_case_values *v)
{
    const bool exact = v->of->op.exact;
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double x = v->in[0].at[i];
        v->out.at[i] = gelu_at(x, exact);
        v->out.sum[i] = v->gpu ? fabs(x) : fabs(v->out.at[i]) * gelu_rounding(x, exact) + 1e-30;
    }
    v->out.tolerance = gelu_tolerance(v);
}

// Terms of a slope; on a GPU none cancel out far from 0.
static inline double gelu_terms(const mics_case_values *v, double x)
{
    if (!v->gpu)
        return 3;
    return isfinite(x) && fabs(x) <= 20 ? 1.2 + fabs(x) : 1;
}

static inline void gelu_backward(mics_case_values *v)
{
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double x = v->in[0].at[i], dy = v->dout.at[i];
        v->din[0].at[i] = dy * gelu_slope(x, v->of->op.exact);
        v->din[0].sum[i] = fabs(dy) * gelu_terms(v, x);
    }
    v->din[0].tolerance = gelu_tolerance(v);
}

static inline mics_op_case gelu_case(int64_t elems, double scale, bool exact)
{
    mics_op_case c = {.op = {.kind = MICS_OP_GELU, .exact = exact}, .scale = {scale}};
    c.shape = (mics_op_shape){.N = elems, .in = {1}, .out = 1};
    return c;
}

static inline void gelu_cpu(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 17, 63, 64, 65, 127, 130, 4095, 4097, 20000, 70001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int flags = 0; flags < 8; flags++) {
            mics_case_forward(w, gelu_case(sizes[i], (double)(1 + flags % 4), flags & 4));
            mics_op_case c = gelu_case(sizes[i], flags % 4 == 3 ? 5.0 : 1.0, flags & 4);
            c.add_din = flags & 1;
            c.in_place = flags & 2;
            c.samples = sizes[i] < 100 ? 20 : 0;
            mics_case_backward(w, c);
        }
}

static inline void gelu_shape(const mics_case_walker *w, mics_op_case c)
{
    mics_case_forward(w, c);
    mics_case_backward(w, c);
    c.add_din = true;
    mics_case_backward(w, c);
    c.in_place = true;
    c.add_din = c.shape.N % 2;
    mics_case_backward(w, c);
}

// Every size at some offsets of each buffer: the same, which packs can follow, or not.
static inline void gelu_gpu(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 2, 3, 7, 8, 9, 31, 64, 65, 257, 1000, 4096, 4099};
    const double edges[] = {0.0,  10.5, -10.5, 30000.0,          -30000.0,   5.5,
                            -5.5, 11.5, -12.0, (double)INFINITY, (double)NAN};
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        for (int k = 0; k < 8; k++) {
            const int64_t offsets[] = {0, 3, i % 8, i % 8};
            mics_op_case c = gelu_case(sizes[i], 2, k & 1);
            c.edges = edges;
            c.edge_count = sizes[i] > 30 ? 11 : 9;
            c.offset = offsets[k / 2];
            c.offset_step = k / 2 == 2;
            gelu_shape(w, c);
        }
}

static const mics_op_cases gelu_cases = {MICS_OP_GELU, gelu_cpu, gelu_gpu, gelu_forward,
                                         gelu_backward};
