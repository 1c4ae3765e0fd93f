// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The last GEMM with the softmax and the loss, over chunks of rows, so that no table of all
// logits is kept. Shapes: see mics/kernels.h; R rows of a chunk.
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"
#include <math.h>

// fp32 sums of exponentials run over so many logits, then go on in fp64: a vocabulary may be long.
enum { SUM_BLOCK = 2048 };

// The maximum of each of LANES columns, then of those: compilers that keep to IEEE rules do not
// reorder a maximum by themselves.
static float row_maximum(const float *logits_V, int64_t V)
{
    enum { LANES = 64 };
    float highest[LANES];
    for (int lane = 0; lane < LANES; ++lane)
        highest[lane] = -INFINITY;
    int64_t v = 0;
    for (; v + LANES <= V; v += LANES) {
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane)
            highest[lane] = logits_V[v + lane] > highest[lane] ? logits_V[v + lane] : highest[lane];
    }
    for (; v < V; ++v)
        highest[0] = logits_V[v] > highest[0] ? logits_V[v] : highest[0];
    for (int lane = 1; lane < LANES; ++lane)
        highest[0] = highest[lane] > highest[0] ? highest[lane] : highest[0];
    return highest[0];
}

// Replaces logits by e^(logit - maximum) and returns their sum.
static double exponentiate(float *logits_V, float maximum, int64_t V)
{
    double total = 0;
    for (int64_t begin = 0; begin < V; begin += SUM_BLOCK) {
        int64_t end = begin + SUM_BLOCK < V ? begin + SUM_BLOCK : V;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = begin; v < end; ++v) {
            float e = mics_exp(logits_V[v] - maximum);
            logits_V[v] = e;
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}

static float row_loss(float *logits_V, int32_t target, int64_t V, double *sum_out)
{
    float maximum = row_maximum(logits_V, V);
    float at_target = logits_V[target] - maximum;
    *sum_out = exponentiate(logits_V, maximum, V);
    return (float)(log(*sum_out) - (double)at_target);
}

// d loss / d logits = softmax - [v = target].
static float row_gradient(float *logits_V, int32_t target, float scale, int64_t V)
{
    double sum;
    float loss = row_loss(logits_V, target, V, &sum);
    float factor = (float)((double)scale / sum);
#pragma omp simd
    for (int64_t v = 0; v < V; ++v)
        logits_V[v] *= factor;
    logits_V[target] -= scale;
    return loss;
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, V = call->shape.params[0][0], C = call->shape.params[0][1];
    const float *x_NC = call->in[0], *weight_VC = call->params[0];
    float *workspace = call->at->workspace;
    for (int64_t first = 0; first < N; first += call->chunk_rows) {
        int64_t R = N - first < call->chunk_rows ? N - first : call->chunk_rows;
        mics_gemm(false, true, R, V, C, 1.0F, x_NC + first * C, C, weight_VC, C, 0.0F, workspace,
                  V);
#pragma omp parallel for if (R * V >= MICS_OP_PARALLEL)
        for (int64_t r = 0; r < R; ++r) {
            double sum;
            call->losses[first + r] =
                row_loss(workspace + r * V, call->targets[first + r], V, &sum);
        }
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, V = call->shape.params[0][0], C = call->shape.params[0][1];
    const float *x_NC = call->in[0], *weight_VC = call->params[0], scale = call->loss_scale;
    float *dx_NC = call->din, *workspace = call->at->workspace;
    for (int64_t first = 0; first < N; first += call->chunk_rows) {
        int64_t R = N - first < call->chunk_rows ? N - first : call->chunk_rows;
        const float *x_RC = x_NC + first * C;
        mics_gemm(false, true, R, V, C, 1.0F, x_RC, C, weight_VC, C, 0.0F, workspace, V);
#pragma omp parallel for if (R * V >= MICS_OP_PARALLEL)
        for (int64_t r = 0; r < R; ++r)
            call->losses[first + r] =
                row_gradient(workspace + r * V, call->targets[first + r], scale, V);
        mics_gemm(false, false, R, C, V, 1.0F, workspace, V, weight_VC, C, 0.0F, dx_NC + first * C,
                  C);
        float beta = call->add_params[0] || first > 0 ? 1.0F : 0.0F;
        mics_gemm(true, false, V, C, R, 1.0F, workspace, V, x_RC, C, beta, call->dparams[0], C);
    }
}

static void decode(const mics_op_call *call)
{
    const int64_t N = call->shape.N, V = call->shape.params[0][0], C = call->shape.params[0][1];
    mics_gemm(false, true, N, V, C, 1.0F, call->in[0], C, call->params[0], C, 0.0F, call->logits,
              V);
}

const mics_op_kernels MICS_OP(lm_head_kernels) = {
    .forward = forward, .backward = backward, .decode = decode};
