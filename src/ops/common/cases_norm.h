// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What cases of norms by the root of the mean square share.
#pragma once

#include "ops/common/cases.h"

/* 1 / the root of the mean square of a row. */
static inline double norm_scale(const double *x_C, int64_t C, float eps)
{
    double squares = 0;
    for (int64_t i = 0; i < C; i++)
        squares += x_C[i] * x_C[i];
    return 1 / sqrt(squares / (double)C + (double)eps);
}

/* Gradients of the row at element `at`, with parameter `p` as its weight. */
static inline void norm_gradient(const mics_case_values *v, int p, int64_t at, int64_t C,
                                 double scale)
{
    const double *x = v->in[0].at + at, *dy = v->dout.at + at, *weight = v->params[p].at;
    double sum = 0, abs_sum = 0;
    for (int64_t i = 0; i < C; i++) {
        const double term = dy[i] * x[i] * scale;
        sum += term * weight[i];
        abs_sum += fabs(term * weight[i]);
        mics_case_add(&v->dparams[p], i, term);
    }
    for (int64_t i = 0; i < C; i++) {
        const double own = dy[i] * weight[i], normal = x[i] * scale;
        v->din[0].at[at + i] = scale * (own - normal * sum / (double)C);
        v->din[0].sum[at + i] = scale * (fabs(own) + fabs(normal) * abs_sum / (double)C);
    }
}
