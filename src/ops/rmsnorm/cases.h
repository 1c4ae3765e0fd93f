// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of RMSNorm.
#pragma once

#include "ops/common/cases_norm.h"

static void rmsnorm_forward(mics_case_values *v)
{
    const int64_t C = v->of->shape.out;
    for (int64_t n = 0; n < v->of->shape.N; n++) {
        const double *x = v->in[0].at + n * C;
        v->stats.at[n] = norm_scale(x, C, v->of->op.eps);
        for (int64_t i = 0; i < C; i++)
            v->out.at[n * C + i] = x[i] * v->stats.at[n] * v->params[0].at[i];
    }
    mics_case_single(&v->out);
    mics_case_single(&v->stats);
    v->out.tolerance = v->stats.tolerance = mics_case_row_tolerance(C);
}

static void rmsnorm_backward(mics_case_values *v)
{
    const int64_t C = v->of->shape.out;
    for (int64_t n = 0; n < v->of->shape.N; n++)
        norm_gradient(v, 0, n * C, C, v->stats.at[n]);
    v->din[0].tolerance = v->dparams[0].tolerance = mics_case_row_tolerance(C);
}

static mics_op_case rmsnorm_case(int64_t N, int64_t C)
{
    mics_op_case c = {.op = {.kind = MICS_OP_RMSNORM, .eps = 1e-5F}, .scale = {2}};
    c.shape = (mics_op_shape){.N = N, .in = {C}, .out = C, .params = {{C}}};
    return c;
}

static void rmsnorm_flags(const mics_case_walker *w, mics_op_case c, int flags)
{
    c.add_din = flags & 1;
    c.add_params[0] = flags & 2;
    c.in_place = flags & 4;
    c.samples = c.shape.out >= 5 ? 20 : 0; // rows of few channels are too curved for differences
    mics_case_backward(w, c);
}

static void rmsnorm_cpu(const mics_case_walker *w)
{
    static const int64_t rows[] = {1, 2, 3, 15, 16, 17, 63, 130};
    static const int64_t channels[] = {1, 2, 3, 5, 17, 64, 65, 127, 768};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof channels / sizeof *channels; j++) {
            const mics_op_case c = rmsnorm_case(rows[i], channels[j]);
            mics_case_forward(w, c);
            rmsnorm_flags(w, c, (int)(i + j) % 8);
        }
    for (int flags = 0; flags < 8; flags++)
        rmsnorm_flags(w, rmsnorm_case(33, 70), flags);
    mics_op_case small = rmsnorm_case(3, 768); // eps counts
    small.scale[0] = 1e-4;
    mics_case_forward(w, small);
}

static void rmsnorm_gpu(const mics_case_walker *w)
{
    static const int64_t shapes[][3] = {{1, 1, 0},    {3, 5, 0},    {17, 64, 0},  {33, 65, 1},
                                        {5, 768, 0},  {300, 24, 0}, {2, 1030, 3}, {1100, 132, 0},
                                        {3, 2056, 0}, {2, 4104, 0}, {2, 8200, 0}, {2, 16392, 0}};
    for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
        mics_op_case c = rmsnorm_case(shapes[i][0], shapes[i][1]);
        c.offset = shapes[i][2];
        mics_case_forward(w, c);
        for (int flags = i % 2; flags < 8; flags += c.shape.N * c.shape.out < 10000 ? 2 : 5)
            rmsnorm_flags(w, c, flags);
    }
}

static const mics_op_cases rmsnorm_cases = {MICS_OP_RMSNORM, rmsnorm_cpu, rmsnorm_gpu,
                                            rmsnorm_forward, rmsnorm_backward};
