// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The last GEMM with the softmax and the loss, over chunks of rows, so that no table of all
// logits is kept. Rows that do not count cost little: where a chunk has many of them, the others
// are put together behind the logits, and GEMMs see those alone. Shapes: see mics/kernels.h; R rows
// of a chunk, M rows that its GEMMs see. In bf16 exponentials are computed
// twice, and so rounded once, as gradients; several chunks' gradients of the weight are summed in
// fp32.
#include "ops/common/decode.h"
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"
#include "ops/lm_head/def.h"
#include <math.h>
#include <string.h>

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
    const mics_elem *x_NC, *weight_VC, *bias_V;
    float *dbias_V; // sums of all chunks, before the logits
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
              .bias_V = call->params[1],
              .dbias_V = call->at->workspace};
    float *rest = h.dbias_V + mics_lm_head_bias_floats(&call->shape);
    h.logits = (mics_elem *)(void *)rest;
    h.stride = MICS_ELEM_FP32 ? h.V : mics_logits_stride_bf16(h.V);
    if (!MICS_ELEM_FP32) {
        const bool chunks = call->chunk_rows < h.N;
        const int64_t rows = chunks ? call->chunk_rows : h.N;
        h.dweight_VC = rest + mics_logits_floats_bf16(rows, h.V);
        h.space = h.dweight_VC + (chunks ? mics_lm_head_sum_floats(&call->shape) : 0);
    }
    return h;
}

// ---- chunks ----

typedef struct chunk {
    int64_t first, R, M;
    bool gathered;        // else M = R, all of them
    const int32_t *row_M; // which rows were gathered
    const mics_elem *x_MC;
    mics_elem *dx_MC; // backward; of gathered rows where x_MC is
} chunk;

static bool counts(const mics_op_call *call, int64_t row)
{
    return call->targets[row] >= 0;
}

static int64_t count_rows(const mics_op_call *call, int64_t first, int64_t R)
{
    int64_t counted = 0;
    for (int64_t r = 0; r < R; ++r)
        counted += counts(call, first + r);
    return counted;
}

// The place of a chunk's logits holds fewer rows of them, their numbers and their inputs.
static bool may_gather(const mics_op_call *call, const head *h, int64_t rows)
{
    const int64_t row = h->stride + h->C + (int64_t)(sizeof(int32_t) / sizeof(mics_elem));
    return rows * row <= (call->chunk_rows < h->N ? call->chunk_rows : h->N) * h->stride;
}

static void gather(const mics_op_call *call, const head *h, int64_t counted, chunk *c)
{
    int32_t *row_M = (int32_t *)(void *)(h->logits + counted * h->stride);
    mics_elem *x_MC = (mics_elem *)(void *)(row_M + counted);
    c->M = 0;
    for (int64_t r = 0; r < c->R; ++r) {
        if (!counts(call, c->first + r))
            continue;
        row_M[c->M] = (int32_t)r;
        memcpy(x_MC + c->M++ * h->C, h->x_NC + (c->first + r) * h->C, (size_t)h->C * sizeof *x_MC);
    }
    c->gathered = true;
    c->row_M = row_M;
    c->x_MC = c->dx_MC = x_MC;
}

static chunk chunk_at(const mics_op_call *call, const head *h, int64_t first)
{
    const int64_t R = h->N - first < call->chunk_rows ? h->N - first : call->chunk_rows;
    const int64_t counted = count_rows(call, first, R);
    chunk c = {.first = first, .R = R, .M = R, .x_MC = h->x_NC + first * h->C};
    if (call->din != NULL)
        c.dx_MC = (mics_elem *)call->din + first * h->C;
    if (counted < R && may_gather(call, h, counted))
        gather(call, h, counted, &c);
    return c;
}

// Gathered rows of dx to where they belong; the others are 0.
static void scatter(const mics_op_call *call, const head *h, const chunk *c)
{
    mics_elem *dx_RC = (mics_elem *)call->din + c->first * h->C;
    memset(dx_RC, 0, (size_t)(c->R * h->C) * sizeof *dx_RC);
    for (int64_t m = 0; m < c->M; ++m)
        memcpy(dx_RC + c->row_M[m] * h->C, c->dx_MC + m * h->C, (size_t)h->C * sizeof *dx_RC);
}

// logits (M, V) = x W^T
static void logits_of(const mics_op_call *call, const head *h, const mics_elem *x_MC, int64_t M)
{
    MICS_OP(gemm)
    (call->at, &(mics_gemm_spec){.transpose_b = true,
                                 .M = M,
                                 .N = h->V,
                                 .K = h->C,
                                 .a = x_MC,
                                 .lda = h->C,
                                 .b = h->weight_VC,
                                 .ldb = h->C,
                                 .c = h->logits,
                                 .bias = h->bias_V,
                                 .ldc = h->stride,
                                 .space = h->space});
}

// dx (M, C) = dlogits W
static void input_gradient(const mics_op_call *call, const head *h, const chunk *c)
{
    MICS_OP(gemm)
    (call->at, &(mics_gemm_spec){.M = c->M,
                                 .N = h->C,
                                 .K = h->V,
                                 .a = h->logits,
                                 .lda = h->stride,
                                 .b = h->weight_VC,
                                 .ldb = h->C,
                                 .c = c->dx_MC,
                                 .ldc = h->C,
                                 .space = h->space});
}

// Whether the weight's gradient is summed in fp32 and rounded at the end.
static bool is_summed_wide(const mics_op_call *call, const head *h)
{
    return !MICS_ELEM_FP32 && call->chunk_rows < h->N && call->dparams[0] != NULL;
}

// dW (V, C) (+)= dlogits^T x, or, in bf16, the sum of several chunks. `begins`: no chunk came
// before.
static void weight_gradient(const mics_op_call *call, const head *h, const chunk *c, bool begins)
{
    const bool wide = is_summed_wide(call, h);
    const bool add = !begins || (!wide && call->add_params[0]);
    MICS_OP(gemm)
    (call->at, &(mics_gemm_spec){.transpose_a = true,
                                 .add = add,
                                 .wide = wide,
                                 .M = h->V,
                                 .N = h->C,
                                 .K = c->M,
                                 .a = h->logits,
                                 .lda = h->stride,
                                 .b = c->x_MC,
                                 .ldb = h->C,
                                 .c = wide ? h->dweight_VC : call->dparams[0],
                                 .ldc = h->C,
                                 .space = h->space});
}

// Adds a chunk's gradients to those of the bias, each thread's columns in the order of rows.
static void add_bias_gradient(const head *h, const chunk *c, bool begins)
{
    enum { STRIPE = 1024 };
#pragma omp parallel for if (c->M * h->V >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < h->V; begin += STRIPE) {
        const int64_t end = begin + STRIPE < h->V ? begin + STRIPE : h->V;
        if (begins)
            memset(h->dbias_V + begin, 0, (size_t)(end - begin) * sizeof(float));
        for (int64_t m = 0; m < c->M; ++m) {
            const mics_elem *dlogits_V = h->logits + m * h->stride;
#pragma omp simd
            for (int64_t v = begin; v < end; ++v)
                h->dbias_V[v] += mics_load(dlogits_V[v]);
        }
    }
}

static float scale_of(const mics_op_call *call, int64_t row)
{
    return call->loss_scale * (call->row_scales != NULL ? call->row_scales[row] : 1);
}

// Losses of a chunk's rows from their logits, in whose place the gradients then are.
static void losses_of(const mics_op_call *call, const head *h, const chunk *c, bool gradients)
{
    for (int64_t r = 0; r < c->R; ++r)
        call->losses[c->first + r] = 0;
#pragma omp parallel for if (c->M * h->V >= MICS_OP_PARALLEL)
    for (int64_t m = 0; m < c->M; ++m) {
        const int64_t row = c->first + (c->gathered ? c->row_M[m] : m);
        mics_elem *logits_V = h->logits + m * h->stride;
        softmax of;
        if (!counts(call, row) && gradients)
            memset(logits_V, 0, (size_t)h->V * sizeof *logits_V);
        else if (counts(call, row) && gradients)
            call->losses[row] =
                row_gradient(logits_V, call->targets[row], scale_of(call, row), h->V);
        else if (counts(call, row))
            call->losses[row] = row_loss(logits_V, call->targets[row], h->V, &of);
    }
}

static void forward(const mics_op_call *call)
{
    const head h = head_of(call);
    for (int64_t first = 0; first < h.N; first += call->chunk_rows) {
        const chunk c = chunk_at(call, &h, first);
        if (c.M > 0)
            logits_of(call, &h, c.x_MC, c.M);
        losses_of(call, &h, &c, false);
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

// Of a call whose rows do not count.
static void zero_params(const mics_op_call *call, const head *h)
{
    if (call->dparams[0] != NULL && !call->add_params[0])
        memset(call->dparams[0], 0, (size_t)(h->V * h->C) * sizeof(mics_elem));
    if (call->dparams[1] != NULL && !call->add_params[1])
        memset(call->dparams[1], 0, (size_t)h->V * sizeof(mics_elem));
}

static void backward(const mics_op_call *call)
{
    const head h = head_of(call);
    bool begins = true;
    for (int64_t first = 0; first < h.N; first += call->chunk_rows) {
        const chunk c = chunk_at(call, &h, first);
        if (c.M > 0)
            logits_of(call, &h, c.x_MC, c.M);
        losses_of(call, &h, &c, true);
        if (c.M > 0) {
            if (call->dparams[1] != NULL)
                add_bias_gradient(&h, &c, begins);
            if (call->dparams[0] != NULL) // before dx takes the place of gathered rows
                weight_gradient(call, &h, &c, begins);
            if (call->din != NULL)
                input_gradient(call, &h, &c);
            begins = false;
        }
        if (c.gathered && call->din != NULL)
            scatter(call, &h, &c);
    }
    if (begins) {
        zero_params(call, &h);
        return;
    }
    if (is_summed_wide(call, &h))
        round_weight(call, &h);
    if (call->dparams[1] != NULL)
        MICS_OP(sum_parts)(call->dparams[1], h.dbias_V, 1, h.V, h.V, call->add_params[1]);
}

static void logits(const mics_op_call *call)
{
    head h = head_of(call);
    h.logits = call->logits;
    h.stride = h.V;
    h.space = call->at->workspace;
    logits_of(call, &h, h.x_NC, h.N);
}

const mics_op_kernels MICS_OP(lm_head_kernels) = {
    .forward = forward,
    .backward = backward,
    .logits = logits,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(lm_head_decode) : NULL,
    .decode_divides = true};
