// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows scaled by their root mean square. Shapes: see mics/op.h.
#include "ops/common/def.h"
#include "ops/common/kernels_isa.h"
#include <math.h>
#include <string.h>

static void forward_row(float *y_C, float *scale_out, const float *x_C, const float *weight_C,
                        float eps, int64_t C)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; ++c)
        squares += x_C[c] * x_C[c];
    const float scale = 1.0F / sqrtf(squares / (float)C + eps);
#pragma omp simd
    for (int64_t c = 0; c < C; ++c)
        y_C[c] = x_C[c] * scale * weight_C[c];
    *scale_out = scale;
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const float *x_NC = call->in[0];
    float *y_NC = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        forward_row(y_NC + n * C, call->stats + n, x_NC + n * C, call->params[0],
                    call->shape.op->eps, C);
}

// With normal = x scale and g = dy weight: dx = scale (g - normal * mean of (g normal)).
static void backward_row(float *dx_C, float *dweight_C, const float *dy_C, const float *x_C,
                         float scale, const float *weight_C, int64_t C, bool add_dx)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; ++c) {
        const float normal = x_C[c] * scale;
        sum += dy_C[c] * weight_C[c] * normal;
        dweight_C[c] += dy_C[c] * normal;
    }
    const float mean = sum / (float)C;
    if (add_dx) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dx_C[c] += (dy_C[c] * weight_C[c] - x_C[c] * scale * mean) * scale;
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dx_C[c] = (dy_C[c] * weight_C[c] - x_C[c] * scale * mean) * scale;
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const int64_t blocks = N < MICS_NORM_BLOCKS ? N : MICS_NORM_BLOCKS;
    const float *dy_NC = call->dout, *x_NC = call->in[0], *scale_N = call->stats;
    float *dx_NC = call->din, *workspace = call->at->workspace;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t block = 0; block < blocks; ++block) {
        float *dweight = workspace + block * C;
        memset(dweight, 0, (size_t)C * sizeof *dweight);
        for (int64_t n = block * N / blocks; n < (block + 1) * N / blocks; ++n)
            backward_row(dx_NC + n * C, dweight, dy_NC + n * C, x_NC + n * C, scale_N[n],
                         call->params[0], C, call->add_din);
    }
    MICS_OP(sum_rows)(call->dparams[0], workspace, blocks, C, C, call->add_params[0]);
}

const mics_op_kernels MICS_OP(rmsnorm_kernels) = {.forward = forward, .backward = backward};
