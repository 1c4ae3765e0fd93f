// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of SwiGLU: N rows of I gates and I numbers.
#pragma once

#include "ops/common/cases.h"

// Rounding of e^-g is an error of |g| units in the sigmoid where that is small.
static double swiglu_rounding(double gate)
{
    return 3 + (gate < 0 ? -gate : 0);
}

// On a GPU numbers of 2 bytes have quick exponentials, and below 1e-28 there is no relative error.
static double swiglu_tolerance(const mics_case_values *v)
{
    return v->gpu && v->dtype != MICS_DTYPE_FP32 ? 4e-6 : MICS_CASE_TOLERANCE;
}

static double swiglu_least(const mics_case_values *v)
{
    return v->gpu ? 1e-28 : 0;
}

// Of a row: a token's, or one at an expert of its.
static int64_t swiglu_width(const mics_case_values *v)
{
    const int32_t chosen = v->of->op.experts.chosen;
    return v->of->shape.out / (chosen > 0 ? chosen : 1);
}

static void swiglu_forward(mics_case_values *v)
{
    const int64_t I = swiglu_width(v);
    for (int64_t i = 0; i < v->out.elems; i++) {
        const double *row = v->in[0].at + i / I * 2 * I, gate = row[i % I];
        v->out.at[i] = gate / (1 + exp(-gate)) * row[I + i % I];
        v->out.sum[i] = fabs(v->out.at[i]) * swiglu_rounding(gate) + swiglu_least(v);
    }
    v->out.tolerance = swiglu_tolerance(v);
}

static void swiglu_backward(mics_case_values *v)
{
    const int64_t I = swiglu_width(v);
    double *dx = v->din[0].at, *sum = v->din[0].sum;
    for (int64_t i = 0; i < v->out.elems; i++) {
        const int64_t at = i / I * 2 * I + i % I;
        const double gate = v->in[0].at[at], up = v->in[0].at[at + I], dy = v->dout.at[i];
        const double s = 1 / (1 + exp(-gate)), others = 1 / (1 + exp(gate)); // 1 - s
        dx[at] = dy * up * s * (1 + gate * others);
        dx[at + I] = dy * gate * s;
        sum[at] =
            fabs(dy * up) * s * (1 + fabs(gate) * others) * swiglu_rounding(gate) + swiglu_least(v);
        sum[at + I] = fabs(dx[at + I]) * swiglu_rounding(gate) + swiglu_least(v);
    }
    v->din[0].tolerance = swiglu_tolerance(v);
}

static void swiglu_case(const mics_case_walker *w, int64_t N, int64_t I, mics_op_case c)
{
    const int64_t rows = c.op.experts.chosen > 0 ? c.op.experts.chosen : 1;
    c.op.kind = MICS_OP_SWIGLU;
    c.shape.N = N / rows;
    c.shape.in[0] = 2 * I * rows;
    c.shape.out = I * rows;
    mics_case_forward(w, c);
    c.samples = c.scale[0] < 3 ? 20 : 0;
    mics_case_backward(w, c);
}

static void swiglu_cpu(const mics_case_walker *w)
{
    static const int64_t rows[] = {1, 2, 17, 70}, widths[] = {1, 3, 8, 17, 40, 64, 129, 768};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof widths / sizeof *widths; j++)
            swiglu_case(
                w, rows[i], widths[j],
                (mics_op_case){.scale = {(i + j) % 3 ? 1.0 : 10.0}, .add_din = (i + j) % 2});
}

static void swiglu_gpu(const mics_case_walker *w)
{
    static const int64_t shapes[][3] = {{1, 1, 0},   {3, 5, 0},    {17, 64, 0},  {33, 65, 1},
                                        {5, 128, 1}, {70, 96, 0},  {2, 2056, 0}, {9, 40, 0},
                                        {3, 300, 0}, {130, 16, 0}, {2, 4099, 0}};
    static const double edges[] = {0.0, 30.0, -30.0, 30000.0, -30000.0, 87.5, -87.5};
    mics_op_case c = {.scale = {2}, .edges = edges, .edge_count = 7};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        c.offset = shapes[i][2];
        c.add_din = (i + (size_t)w->dtype) % 2;
        swiglu_case(w, shapes[i][0], shapes[i][1], c);
    }
    c.offset = 0;
    for (int32_t chosen = 1; chosen < 4; chosen++) {
        c.op.experts = (mics_experts){.count = 7, .chosen = chosen};
        c.add_din = chosen == 2;
        swiglu_case(w, 6, 5 + 11 * chosen, c);
        swiglu_case(w, 12, 16, c);
    }
}

static const mics_op_cases swiglu_cases = {MICS_OP_SWIGLU, swiglu_cpu, swiglu_gpu, swiglu_forward,
                                           swiglu_backward};
