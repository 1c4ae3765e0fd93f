// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cases of layernorm.
#pragma once

#include "ops/common/cases.h"

// Far from 0 a row of bf16 has few different numbers, which round alike on the CPU.
static double layernorm_tolerance(const mics_case_values *v)
{
    const int64_t C = v->of->shape.out;
    if (!v->gpu && v->dtype == MICS_DTYPE_BF16)
        return MICS_CASE_TOLERANCE * (1 + (double)C / 16);
    return mics_case_row_tolerance(C);
}

// |x| averaged over a row: rounding of the mean scales with it.
static double layernorm_mean_abs(const double *x_C, int64_t C)
{
    double sum = 0;
    for (int64_t i = 0; i < C; i++)
        sum += fabs(x_C[i]);
    return sum / (double)C;
}

static void layernorm_stats(double stats_2[2], const double *x_C, int64_t C, float eps)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < C; i++)
        sum += x_C[i];
    stats_2[0] = sum / (double)C;
    for (int64_t i = 0; i < C; i++)
        squares += (x_C[i] - stats_2[0]) * (x_C[i] - stats_2[0]);
    stats_2[1] = 1 / sqrt(squares / (double)C + (double)eps);
}

static void layernorm_forward(mics_case_values *v)
{
    const int64_t C = v->of->shape.out;
    const double *weight = v->params[0].at, *bias = v->params[1].at;
    for (int64_t n = 0; n < v->of->shape.N; n++) {
        const double *x = v->in[0].at + n * C, mean_abs = layernorm_mean_abs(x, C);
        double *stats = v->stats.at + 2 * n, *y = v->out.at + n * C, *sum = v->out.sum + n * C;
        layernorm_stats(stats, x, C, v->of->op.eps);
        v->stats.sum[2 * n] = mean_abs;
        v->stats.sum[2 * n + 1] = stats[1];
        for (int64_t i = 0; i < C; i++) {
            y[i] = (x[i] - stats[0]) * stats[1] * weight[i] + bias[i];
            sum[i] = (fabs(x[i]) + mean_abs) * stats[1] * fabs(weight[i]) + fabs(bias[i]);
        }
    }
    v->out.tolerance = v->stats.tolerance = layernorm_tolerance(v);
}

static void layernorm_gradient(const mics_case_values *v, int64_t n)
{
    const int64_t C = v->of->shape.out, at = n * C;
    const double *x = v->in[0].at + at, *dy = v->dout.at + at, *weight = v->params[0].at;
    const double mean = v->stats.at[2 * n], scale = v->stats.at[2 * n + 1], count = (double)C;
    const double mean_abs = layernorm_mean_abs(x, C);
    double sum = 0, sum_normal = 0, abs_sum = 0, abs_normal = 0;
    for (int64_t i = 0; i < C; i++) {
        const double normal = (x[i] - mean) * scale, own = dy[i] * weight[i];
        const double normal_sum = (fabs(x[i]) + mean_abs) * scale;
        sum += own;
        sum_normal += own * normal;
        abs_sum += fabs(own);
        abs_normal += fabs(own) * normal_sum;
        v->dparams[0].at[i] += dy[i] * normal;
        v->dparams[0].sum[i] += fabs(dy[i]) * normal_sum;
        mics_case_add(&v->dparams[1], i, dy[i]);
    }
    for (int64_t i = 0; i < C; i++) {
        const double normal = (x[i] - mean) * scale, own = dy[i] * weight[i];
        const double normal_sum = (fabs(x[i]) + mean_abs) * scale;
        v->din[0].at[at + i] = scale * (own - sum / count - normal * sum_normal / count);
        v->din[0].sum[at + i] =
            scale * (fabs(own) + abs_sum / count + normal_sum * abs_normal / count);
    }
}

static void layernorm_backward(mics_case_values *v)
{
    for (int64_t n = 0; n < v->of->shape.N; n++)
        layernorm_gradient(v, n);
    v->din[0].tolerance = v->dparams[0].tolerance = layernorm_tolerance(v);
}

static mics_op_case layernorm_case(int64_t N, int64_t C)
{
    mics_op_case c = {.op = {.kind = MICS_OP_LAYERNORM, .eps = 1e-5F}, .scale = {2}};
    c.shape = (mics_op_shape){.N = N, .in = {C}, .out = C, .params = {{C}, {C}}};
    c.samples = C >= 5 ? 20 : 0; // rows of few channels may be nearly constant: too curved
    return c;
}

static void layernorm_flags(const mics_case_walker *w, mics_op_case c, int flags)
{
    c.add_din = flags & 1;
    c.add_params[0] = c.add_params[1] = flags & 2;
    c.in_place = flags & 4;
    mics_case_backward(w, c);
}

static void layernorm_shifted(const mics_case_walker *w)
{
    mics_op_case c = layernorm_case(3, 768);
    c.shift = 1000;
    mics_case_forward(w, c);
}

static void layernorm_cpu(const mics_case_walker *w)
{
    static const int64_t rows[] = {1, 2, 3, 5, 15, 16, 17, 63, 130};
    static const int64_t channels[] = {1, 2, 3, 5, 17, 63, 64, 65, 127, 130, 768};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t j = 0; j < sizeof channels / sizeof *channels; j++) {
            const mics_op_case c = layernorm_case(rows[i], channels[j]);
            mics_case_forward(w, c);
            layernorm_flags(w, c, (int)(i + j) % 8);
        }
    for (int flags = 0; flags < 8; flags++)
        layernorm_flags(w, layernorm_case(33, 70), flags);
    layernorm_shifted(w);
}

// Rows enough that each block has several, of each team, and flags in all combinations.
static void layernorm_many_rows(const mics_case_walker *w)
{
    static const struct {
        mics_dtype dtype;
        int64_t N, C;
        int flags;
    } shapes[] = {{MICS_DTYPE_BF16, 4200, 8, 0},
                  {MICS_DTYPE_FP32, 1100, 132, 3},
                  {MICS_DTYPE_FP16, 800, 1032, 0},
                  {MICS_DTYPE_BF16, 400, 2056, 2},
                  {MICS_DTYPE_FP32, 600, 3, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (shapes[i].dtype == w->dtype)
            layernorm_flags(w, layernorm_case(shapes[i].N, shapes[i].C), shapes[i].flags);
    if (w->dtype == MICS_DTYPE_FP32)
        layernorm_shifted(w);
    if (w->dtype != MICS_DTYPE_BF16)
        return;
    mics_case_forward(w, layernorm_case(300, 8));
    for (int flags = 0; flags < 8; flags++) {
        layernorm_flags(w, layernorm_case(33, 72), flags);
        layernorm_flags(w, layernorm_case(33, 70), flags);
    }
}

// Lengths of rows for each kernel that there is: teams of a warp to whole blocks, one to eight
// packs a thread, plain loops.
static void layernorm_gpu(const mics_case_walker *w)
{
    static const int64_t channels[] = {1,    2,    3,    8,    17,   64,    65,    130,
                                       256,  264,  768,  1001, 1024, 1032,  1600,  2056,
                                       3072, 4104, 6000, 8192, 8200, 12288, 16384, 16392};
    static const int64_t rows[] = {1, 3, 17, 2};
    for (int i = 0; i < (int)(sizeof channels / sizeof *channels); i++) {
        mics_op_case c = layernorm_case(channels[i] > 2000 ? 1 + i % 3 : rows[i % 4], channels[i]);
        c.offset = i % 5 == 3;
        mics_case_forward(w, c);
        layernorm_flags(w, c, (i + (int)w->dtype) % 8);
    }
    layernorm_many_rows(w);
}

static const mics_op_cases layernorm_cases = {MICS_OP_LAYERNORM, layernorm_cpu, layernorm_gpu,
                                              layernorm_forward, layernorm_backward};
