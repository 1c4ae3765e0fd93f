// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of ReLU and SiLU. Shards begin and end anywhere.
#pragma once

#include "ops/common/cases.h"

// Rounding of e^-x is an error of |x| units in the sigmoid where that is small.
static inline double activation_rounding(const mics_case_values *v, double x)
{
    if (v->of->op.activation == MICS_ACTIVATION_RELU)
        return 1;
    return 3 + (x < 0 ? -x : 0);
}

// On a GPU numbers of 2 bytes have quick exponentials, and below 1e-28 there is no relative error.
static inline double activation_tolerance(const mics_case_values *v)
{
    return v->gpu && v->dtype != MICS_DTYPE_FP32 ? 4e-6 : MICS_CASE_TOLERANCE;
}

static inline double activation_least(const mics_case_values *v)
{
    return v->gpu ? 1e-28 : 1e-36;
}

static inline void activation_forward(mics_case_values *v)
{
    const bool relu = v->of->op.activation == MICS_ACTIVATION_RELU;
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double x = v->in[0].at[i];
        v->out.at[i] = relu ? (x > 0 ? x : 0) : x / (1 + exp(-x));
        v->out.sum[i] = fabs(v->out.at[i]) * activation_rounding(v, x) + activation_least(v);
    }
    v->out.tolerance = activation_tolerance(v);
}

static inline void activation_backward(mics_case_values *v)
{
    const bool relu = v->of->op.activation == MICS_ACTIVATION_RELU;
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double x = v->in[0].at[i], dy = v->dout.at[i];
        const double s = 1 / (1 + exp(-x)), others = 1 / (1 + exp(x)); // 1 - s
        const double slope = relu ? x > 0 : s * (1 + x * others);
        const double terms = relu ? slope : s * (1 + fabs(x) * others);
        v->din[0].at[i] = dy * slope;
        v->din[0].sum[i] = fabs(dy) * terms * activation_rounding(v, x) + activation_least(v);
    }
    v->din[0].tolerance = activation_tolerance(v);
}

static inline mics_op_case activation_case(int64_t elems, double scale, int32_t which)
{
    mics_op_case c = {.op = {.kind = MICS_OP_ACTIVATION, .activation = (mics_activation)which},
                      .scale = {scale}};
    c.shape = (mics_op_shape){.N = elems, .in = {1}, .out = 1};
    return c;
}

// Central differences, those of ReLU away from 0, where it has no derivative.
static inline void activation_differences(const mics_case_walker *w, mics_op_case c)
{
    c.samples = 20;
    c.scale[0] = 1;
    if (c.op.activation == MICS_ACTIVATION_RELU)
        c.shift = c.add_din ? 8 : -8;
    if (c.shape.N < 100)
        mics_case_backward(w, c);
}

static inline void activation_cpu(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 2, 5, 17, 63, 64, 65, 130, 4095, 4097, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int flags = 0; flags < 4 * MICS_ACTIVATIONS; flags++) {
            mics_op_case c = activation_case(sizes[i], flags % 4 == 3 ? 10 : 1, flags / 4);
            mics_case_forward(w, c);
            c.add_din = flags & 1;
            c.in_place = flags & 2;
            mics_case_backward(w, c);
            activation_differences(w, c);
        }
}

static inline void activation_shape(const mics_case_walker *w, mics_op_case c)
{
    mics_case_forward(w, c);
    mics_case_backward(w, c);
    c.in_place = true;
    c.add_din = c.shape.N % 2;
    mics_case_backward(w, c);
}

// Every size at some offsets of each buffer: the same, which packs can follow, or not.
static inline void activation_gpu(const mics_case_walker *w)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 31, 64, 65, 257, 1000, 4096, 4099};
    static const double edges[] = {0.0, 30.0, -30.0, 30000.0, -30000.0, 87.5, -87.5};
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++)
        for (int k = 0; k < 3 * MICS_ACTIVATIONS; k++) {
            mics_op_case c = activation_case(sizes[i], 2, k / 3);
            c.edges = edges;
            c.edge_count = 7;
            c.offset = k % 3 ? i % 8 : 0;
            c.offset_step = k % 3 == 2;
            activation_shape(w, c);
        }
}

static const mics_op_cases activation_cases = {MICS_OP_ACTIVATION, activation_cpu, activation_gpu,
                                               activation_forward, activation_backward};
