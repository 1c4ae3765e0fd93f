// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows, with what backward needs of each. Shapes: see mics/kernels.h.
#include "ops/common/def.h"
#include "ops/common/kernels_isa.h"
#include <math.h>
#include <string.h>

static void forward_row(mics_elem *y_C, float *stats, const mics_elem *x_C,
                        const mics_elem *weight_C, const mics_elem *bias_C, float eps, int64_t C)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; ++c)
        sum += mics_load(x_C[c]);
    float mean = sum / (float)C;
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; ++c)
        squares += (mics_load(x_C[c]) - mean) * (mics_load(x_C[c]) - mean);
    float scale = 1.0F / sqrtf(squares / (float)C + eps);
#pragma omp simd
    for (int64_t c = 0; c < C; ++c)
        y_C[c] = mics_store((mics_load(x_C[c]) - mean) * scale * mics_load(weight_C[c]) +
                            mics_load(bias_C[c]));
    stats[0] = mean;
    stats[1] = scale;
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const mics_elem *x_NC = call->in[0], *weight_C = call->params[0], *bias_C = call->params[1];
    const float eps = call->shape.op->eps;
    mics_elem *y_NC = call->out;
    float *stats_N2 = call->stats;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        forward_row(y_NC + n * C, stats_N2 + 2 * n, x_NC + n * C, weight_C, bias_C, eps, C);
}

// With normal = (x - mean) scale and g = dy weight:
// dx = scale (g - mean of g - normal * mean of (g normal)). What is NULL is not wanted.
static void backward_row(mics_elem *dx_C, float *dweight_C, float *dbias_C, const mics_elem *dy_C,
                         const mics_elem *x_C, const float *stats, const mics_elem *weight_C,
                         int64_t C, bool add_dx)
{
    const float mean = stats[0], scale = stats[1];
    float sum = 0, sum_normal = 0;
    if (dweight_C) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dweight_C[c] += mics_load(dy_C[c]) * ((mics_load(x_C[c]) - mean) * scale);
    }
    if (dbias_C) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dbias_C[c] += mics_load(dy_C[c]);
    }
    if (!dx_C)
        return;
#pragma omp simd reduction(+ : sum, sum_normal)
    for (int64_t c = 0; c < C; ++c) {
        const float g = mics_load(dy_C[c]) * mics_load(weight_C[c]);
        sum += g;
        sum_normal += g * ((mics_load(x_C[c]) - mean) * scale);
    }
    const float mean_g = sum / (float)C, mean_normal = sum_normal / (float)C;
    if (add_dx) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) {
            const float normal = (mics_load(x_C[c]) - mean) * scale;
            const float g = mics_load(dy_C[c]) * mics_load(weight_C[c]);
            dx_C[c] = mics_store(mics_load(dx_C[c]) + (g - mean_g - normal * mean_normal) * scale);
        }
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) {
            const float normal = (mics_load(x_C[c]) - mean) * scale;
            const float g = mics_load(dy_C[c]) * mics_load(weight_C[c]);
            dx_C[c] = mics_store((g - mean_g - normal * mean_normal) * scale);
        }
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const mics_elem *dy_NC = call->dout, *x_NC = call->in[0], *weight_C = call->params[0];
    const float *stats_N2 = call->stats;
    const bool add_dx = call->add_din, *add = call->add_params;
    mics_elem *dx_NC = call->din;
    float *workspace = call->at->workspace;
    int64_t blocks = N < MICS_NORM_BLOCKS ? N : MICS_NORM_BLOCKS;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t block = 0; block < blocks; ++block) {
        float *sums[2] = {NULL, NULL};
        for (int p = 0; p < 2; ++p)
            if (call->dparams[p])
                sums[p] = memset(workspace + (2 * block + p) * C, 0, (size_t)C * sizeof *workspace);
        for (int64_t n = block * N / blocks; n < (block + 1) * N / blocks; ++n)
            backward_row(dx_NC ? dx_NC + n * C : NULL, sums[0], sums[1], dy_NC + n * C,
                         x_NC + n * C, stats_N2 + 2 * n, weight_C, C, add_dx);
    }
    for (int p = 0; p < 2; ++p)
        if (call->dparams[p])
            MICS_OP(sum_parts)(call->dparams[p], workspace + p * C, blocks, C, 2 * C, add[p]);
}

const mics_op_kernels MICS_OP(layernorm_kernels) = {.forward = forward, .backward = backward};
