// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The last GEMM with the softmax and the loss, over chunks of rows, so that no table of all
// logits is kept. Shapes: see mics/kernels.h; R rows of a chunk. In bf16 exponentials are computed
// twice, and so rounded once, as gradients; several chunks' gradients of the weight are summed in
// fp32.
#include "ops/common/decode.h"
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"
#include "ops/lm_head/def.h"
#include <math.h>

// fp32 sums of exponentials run over so many logits, then go on in fp64: a vocabulary may be long.
enum { SUM_BLOCK = 2048 };

// The maximum of each of LANES columns, then of those: compilers that keep to IEEE rules do not
// reorder a maximum by themselves.
static float row_maximum(const mics_elem *logits_V, int64_t V)
{
    enum { LANES = 64 };
    float highest[LANES];
    for (int lane = 0; lane < LANES; ++lane)
        highest[lane] = -INFINITY;
    int64_t v = 0;
    for (; v + LANES <= V; v += LANES) {
#pragma omp simd
        for (int lane = 0; lane < LANES; ++lane) {
            const float logit = mics_load(logits_V[v + lane]);
            highest[lane] = logit > highest[lane] ? logit : highest[lane];
        }
    }
    for (; v < V; ++v) {
        const float logit = mics_load(logits_V[v]);
        highest[0] = logit > highest[0] ? logit : highest[0];
    }
    for (int lane = 1; lane < LANES; ++lane)
        highest[0] = highest[lane] > highest[0] ? highest[lane] : highest[0];
    return highest[0];
}

// Returns the sum of e^(logit - maximum), which in fp32 take the place of the logits.
static double exponentiate(mics_elem *logits_V, float maximum, int64_t V)
{
    double total = 0;
    for (int64_t begin = 0; begin < V; begin += SUM_BLOCK) {
        int64_t end = begin + SUM_BLOCK < V ? begin + SUM_BLOCK : V;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t v = begin; v < end; ++v) {
            const float e = mics_exp(mics_load(logits_V[v]) - maximum);
            if (MICS_ELEM_FP32)
                logits_V[v] = mics_store(e);
            sum += e;
        }
        total += (double)sum;
    }
    return total;
}

// A row's softmax, before its division by the sum.
typedef struct softmax {
    float maximum, at_target; // the largest logit, and the target's less that
    double sum;
} softmax;

static float row_loss(mics_elem *logits_V, int32_t target, int64_t V, softmax *of_out)
{
    of_out->maximum = row_maximum(logits_V, V);
    of_out->at_target = mics_load(logits_V[target]) - of_out->maximum;
    of_out->sum = exponentiate(logits_V, of_out->maximum, V);
    return (float)(log(of_out->sum) - (double)of_out->at_target);
}

// d loss / d logits = softmax - [v = target].
static float row_gradient(mics_elem *logits_V, int32_t target, float scale, int64_t V)
{
    softmax of;
    const float loss = row_loss(logits_V, target, V, &of);
    const float factor = (float)((double)scale / of.sum);
#pragma omp simd
    for (int64_t v = 0; v < V; ++v) {
        const float value = mics_load(logits_V[v]);
        const float e = MICS_ELEM_FP32 ? value : mics_exp(value - of.maximum);
        logits_V[v] = mics_store(e * factor);
    }
    const float p = MICS_ELEM_FP32 ? mics_load(logits_V[target]) : mics_exp(of.at_target) * factor;
    logits_V[target] = mics_store(p - scale);
    return loss;
}

typedef struct head {
    int64_t N, V, C, stride; // of a row of logits
    const mics_elem *x_NC, *weight_VC;
    mics_elem *logits;
    // In bf16: sums of several chunks; what GEMMs take.
    float *dweight_VC, *space;
} head;

static head head_of(const mics_op_call *call)
{
    head h = {.N = call->shape.N,
              .V = call->shape.params[0][0],
              .C = call->shape.params[0][1],
              .x_NC = call->in[0],
              .weight_VC = call->params[0],
              .logits = call->at->workspace};
    h.stride = MICS_ELEM_FP32 ? h.V : mics_logits_stride_bf16(h.V);
    if (!MICS_ELEM_FP32) {
        const bool chunks = call->chunk_rows < h.N;
        const int64_t rows = chunks ? call->chunk_rows : h.N;
        h.dweight_VC = (float *)call->at->workspace + mics_logits_floats_bf16(rows, h.V);
        h.space = h.dweight_VC + (chunks ? h.V * h.C : 0);
    }
    return h;
}

// logits (R, V) = x W^T
static void logits_of(const mics_op_call *call, const head *h, int64_t first, int64_t R)
{
    MICS_OP(gemm)
    (call->at, &(mics_gemm_spec){.transpose_b = true,
                                 .M = R,
                                 .N = h->V,
                                 .K = h->C,
                                 .a = h->x_NC + first * h->C,
                                 .lda = h->C,
                                 .b = h->weight_VC,
                                 .ldb = h->C,
                                 .c = h->logits,
                                 .ldc = h->stride,
                                 .space = h->space});
}

// dx (R, C) = dlogits W
static void input_gradient(const mics_op_call *call, const head *h, int64_t first, int64_t R)
{
    MICS_OP(gemm)
    (call->at, &(mics_gemm_spec){.M = R,
                                 .N = h->C,
                                 .K = h->V,
                                 .a = h->logits,
                                 .lda = h->stride,
                                 .b = h->weight_VC,
                                 .ldb = h->C,
                                 .c = (mics_elem *)call->din + first * h->C,
                                 .ldc = h->C,
                                 .space = h->space});
}

// dW (V, C) (+)= dlogits^T x, or, in bf16, the sum of several chunks.
static void weight_gradient(const mics_op_call *call, const head *h, int64_t first, int64_t R)
{
    const bool wide = !MICS_ELEM_FP32 && R < h->N;
    const bool add = first > 0 || (!wide && call->add_params[0]);
    MICS_OP(gemm)
    (call->at, &(mics_gemm_spec){.transpose_a = true,
                                 .add = add,
                                 .wide = wide,
                                 .M = h->V,
                                 .N = h->C,
                                 .K = R,
                                 .a = h->logits,
                                 .lda = h->stride,
                                 .b = h->x_NC + first * h->C,
                                 .ldb = h->C,
                                 .c = wide ? h->dweight_VC : call->dparams[0],
                                 .ldc = h->C,
                                 .space = h->space});
}

static void forward(const mics_op_call *call)
{
    const head h = head_of(call);
    for (int64_t first = 0; first < h.N; first += call->chunk_rows) {
        int64_t R = h.N - first < call->chunk_rows ? h.N - first : call->chunk_rows;
        logits_of(call, &h, first, R);
#pragma omp parallel for if (R * h.V >= MICS_OP_PARALLEL)
        for (int64_t r = 0; r < R; ++r) {
            softmax of;
            call->losses[first + r] =
                row_loss(h.logits + r * h.stride, call->targets[first + r], h.V, &of);
        }
    }
}

// dW of several chunks, from their sum.
static void round_weight(const mics_op_call *call, const head *h)
{
    const int64_t elems = h->V * h->C;
    mics_elem *dweight_VC = call->dparams[0];
    const bool add = call->add_params[0];
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t v = 0; v < h->V; ++v)
        MICS_OP(sum_parts)(dweight_VC + v * h->C, h->dweight_VC + v * h->C, 1, h->C, h->C, add);
}

static void backward(const mics_op_call *call)
{
    const head h = head_of(call);
    for (int64_t first = 0; first < h.N; first += call->chunk_rows) {
        int64_t R = h.N - first < call->chunk_rows ? h.N - first : call->chunk_rows;
        logits_of(call, &h, first, R);
#pragma omp parallel for if (R * h.V >= MICS_OP_PARALLEL)
        for (int64_t r = 0; r < R; ++r)
            call->losses[first + r] = row_gradient(h.logits + r * h.stride,
                                                   call->targets[first + r], call->loss_scale, h.V);
        input_gradient(call, &h, first, R);
        weight_gradient(call, &h, first, R);
    }
    if (!MICS_ELEM_FP32 && call->chunk_rows < h.N)
        round_weight(call, &h);
}

static void logits(const mics_op_call *call)
{
    head h = head_of(call);
    h.logits = call->logits;
    h.stride = h.V;
    h.space = call->at->workspace;
    logits_of(call, &h, 0, h.N);
}

const mics_op_kernels MICS_OP(lm_head_kernels) = {
    .forward = forward,
    .backward = backward,
    .logits = logits,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(lm_head_decode) : NULL,
    .decode_divides = true};
