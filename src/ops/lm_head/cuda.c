// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The last GEMM with softmax and loss, over chunks of rows: logits of a chunk by one GEMM,
// losses and gradients over them in place, then two GEMMs with the gradients. Shapes: see
// mics/kernels.h; R rows of a chunk.
//
// Logits are held in the call's dtype, as an ordinary linear's output is. Their rows are padded to
// 16 bytes, so that a vocabulary of any size (GPT-2's 50257) is read in whole vectors, by the
// GEMMs too.
//
// dW over several chunks, in 2-byte types: V C fp32 numbers of the workspace are where it is
// summed, so that it is rounded once. A caller who has less than the descriptor says, but room for
// a chunk, loses bits to a rounding after each chunk. The bias's gradient is summed in fp32 always.
//
// Rows that do not count are left out where the host says which do (mics_op_call.counted): the others
// are put together behind their logits, chunk by chunk, in the same workspace. They are rounded up to
// whole parts of N by rows that do not count, so that GEMMs of few shapes are planned.
#include "ops/common/bias_cuda.h"
#include "ops/common/cuda_ops.h"
#include "ops/common/def.h"
#include "ops/common/matmul_cuda.h"
#include "ops/lm_head/def.h"

typedef struct lm_head {
    const mics_exec *at;
    const char *x;
    const void *weight, *bias;
    const int32_t *targets;
    const float *row_scales;
    float *loss, scale;
    int64_t N, C, V, stride, rows, chunk_rows; // `rows`: that GEMMs see
    const int32_t *order;                      // which they are, of those gathered; NULL: all
    char *gathered;                            // a chunk's inputs, then their gradients
    float *bias_sum, *block_sums; // of the bias's gradient: over chunks; what a chunk's takes
    void *logits;                 // (chunk_rows, stride)
    void *gemm_space;
    size_t gemm_bytes;
} lm_head;

static int64_t logits_stride(mics_dtype dtype, int64_t V)
{
    return mics_size_round_up(V, (int64_t)(16 / mics_dtype_bytes(dtype)));
}

static size_t logits_bytes(mics_dtype dtype, int64_t V, int64_t rows)
{
    const int64_t bytes = logits_stride(dtype, V) * rows * (int64_t)mics_dtype_bytes(dtype);
    return (size_t)mics_size_round_up(bytes, MICS_PART_BYTES);
}

// The workspace: sums of the bias's gradient, logits, then what GEMMs take.
static void place(lm_head *c, const mics_op_shape *shape)
{
    const mics_exec *at = c->at;
    const size_t sums = (size_t)mics_lm_head_bias_floats(shape) * sizeof(float);
    const size_t logits = sums + logits_bytes(at->dtype, c->V, mics_smaller(c->N, c->chunk_rows));
    c->stride = logits_stride(at->dtype, c->V);
    c->bias_sum = at->workspace;
    c->block_sums = c->bias_sum + mics_size_round_up(shape->params[1][0], 64);
    c->logits = (char *)at->workspace + sums;
    c->gemm_space = (char *)at->workspace + logits;
    c->gemm_bytes = at->workspace_bytes > logits ? at->workspace_bytes - logits : 0;
}

static void zero(const lm_head *c, void *to, int64_t elems, mics_dtype dtype)
{
    c->at->device->ops->zero(c->at->device->ctx, c->at->stream, to,
                             (size_t)elems * mics_dtype_bytes(dtype));
}

// Rows that count, in whole parts of all, at least one.
static int64_t counted_rows(const mics_op_call *call)
{
    enum { PARTS = 16 };
    const int64_t N = call->shape.N;
    const int64_t part = mics_size_round_up((N + PARTS - 1) / PARTS, MICS_LM_HEAD_TILE);
    return mics_smaller(N, mics_size_round_up(mics_larger(call->counted_rows, 1), part));
}

// Gathers rows that count, if that leaves any out, whose losses are 0; `whole`: only if they are one
// chunk.
static void gather_counted(lm_head *c, const mics_op_call *call, bool whole)
{
    const int64_t elem = (int64_t)mics_dtype_bytes(c->at->dtype), row = (c->stride + c->C) * elem;
    const int64_t capacity =
        (int64_t)logits_bytes(c->at->dtype, c->V, mics_smaller(c->N, c->chunk_rows));
    const int64_t most = (capacity - MICS_PART_BYTES) / row;
    const int64_t chunk = most > MICS_LM_HEAD_TILE ? most - most % MICS_LM_HEAD_TILE : most;
    const int64_t rows = call->counted != NULL ? counted_rows(call) : c->N;
    if (rows == c->N || chunk < 1 || (whole && rows > chunk))
        return;
    c->order = call->counted;
    c->rows = rows;
    c->chunk_rows = chunk;
    c->gathered = (char *)c->logits +
                  mics_size_round_up(mics_smaller(rows, chunk) * c->stride * elem, MICS_PART_BYTES);
    zero(c, c->loss, c->N, MICS_DTYPE_FP32);
}

static const void *rows_of(const lm_head *c, int64_t first)
{
    return c->order ? c->gathered : c->x + (size_t)(first * c->C) * mics_dtype_bytes(c->at->dtype);
}

// logits (R, V) = x W^T
static void logits_of(const lm_head *c, int64_t first, int64_t R)
{
    if (c->order)
        mics_cuda_move_rows(c->at, c->gathered, c->x, c->order + first, R, c->C, false);
    mics_cuda_gemm gemm = {.a = rows_of(c, first), .b = c->weight, .c = c->logits};
    gemm.transpose_b = true;
    gemm.M = R;
    gemm.N = c->V;
    gemm.K = gemm.lda = gemm.ldb = c->C;
    gemm.ldc = c->stride;
    mics_cuda_matmul(c->at, &gemm, c->gemm_space, c->gemm_bytes);
    if (c->bias)
        mics_cuda_bias_add(c->at, c->logits, c->bias, R, c->V, c->stride);
}

static void losses_of(const lm_head *c, int64_t first, int64_t R, bool gradients)
{
    mics_cuda_logits logits = {.logits = c->logits, .logits_dtype = c->at->dtype};
    logits.gradients = gradients ? c->logits : NULL;
    const int64_t at = c->order ? 0 : first;
    logits.rows = c->order ? c->order + first : NULL;
    logits.targets = c->targets + at;
    logits.loss = c->loss + at;
    logits.row_scales = c->row_scales ? c->row_scales + at : NULL;
    logits.scale = c->scale;
    logits.R = R;
    logits.V = c->V;
    logits.stride = c->stride;
    mics_cuda_cross_entropy(c->at, &logits);
}

// dx (R, C) = dlogits W
static void backward_input(const lm_head *c, char *dx_NC, int64_t first, int64_t R)
{
    mics_cuda_gemm gemm = {.a = c->logits, .b = c->weight, .c = c->gathered};
    if (!c->order)
        gemm.c = dx_NC + (size_t)(first * c->C) * mics_dtype_bytes(c->at->dtype);
    gemm.M = R;
    gemm.N = gemm.ldb = gemm.ldc = c->C;
    gemm.K = c->V;
    gemm.lda = c->stride;
    mics_cuda_matmul(c->at, &gemm, c->gemm_space, c->gemm_bytes);
    if (c->order)
        mics_cuda_move_rows(c->at, dx_NC, c->gathered, c->order + first, R, c->C, true);
}

// dW (V, C) (+)= dlogits^T x
static void backward_weight(const lm_head *c, void *dweight_VC, int64_t first, int64_t R, bool add,
                            bool wide)
{
    mics_cuda_gemm gemm = {.a = c->logits, .b = rows_of(c, first), .c = dweight_VC};
    gemm.transpose_a = true;
    gemm.add = add;
    gemm.wide = wide;
    gemm.M = c->V;
    gemm.N = gemm.ldb = gemm.ldc = c->C;
    gemm.K = R;
    gemm.lda = c->stride;
    mics_cuda_matmul(c->at, &gemm, c->gemm_space, c->gemm_bytes);
}

static lm_head open_call(const mics_op_call *call)
{
    lm_head c = {.at = call->at,
                 .x = call->in[0],
                 .weight = call->params[0],
                 .bias = call->params[1],
                 .targets = call->targets,
                 .loss = call->losses,
                 .row_scales = call->row_scales,
                 .scale = call->loss_scale,
                 .N = call->shape.N,
                 .rows = call->shape.N,
                 .C = call->shape.params[0][1],
                 .V = call->shape.params[0][0],
                 .chunk_rows = call->chunk_rows};
    place(&c, &call->shape);
    return c;
}

static void forward(const mics_op_call *call)
{
    lm_head c = open_call(call);
    gather_counted(&c, call, false);
    for (int64_t first = 0; first < c.rows; first += c.chunk_rows) {
        const int64_t R = mics_smaller(c.chunk_rows, c.rows - first);
        logits_of(&c, first, R);
        losses_of(&c, first, R, false);
    }
}

static size_t sum_bytes(const lm_head *c)
{
    const int64_t weight_bytes = c->V * c->C * (int64_t)sizeof(float);
    return (size_t)mics_size_round_up(weight_bytes, MICS_PART_BYTES);
}

// Whether several chunks' dW would be rounded after each: it cannot be summed in fp32.
static bool rounds_chunks(const lm_head *c, const mics_op_call *call)
{
    return call->dparams[0] != NULL && c->at->dtype != MICS_DTYPE_FP32 &&
           c->gemm_bytes < sum_bytes(c) + MICS_GEMM_BYTES;
}

// Where dW is summed in fp32, taken from what GEMMs have; NULL when there is no use or no budget.
static float *wide_weight(lm_head *c, const mics_op_call *call)
{
    if (call->dparams[0] == NULL || c->at->dtype == MICS_DTYPE_FP32 || c->chunk_rows >= c->rows ||
        rounds_chunks(c, call))
        return NULL;
    float *wide = c->gemm_space;
    c->gemm_space = (char *)c->gemm_space + sum_bytes(c);
    c->gemm_bytes -= sum_bytes(c);
    return wide;
}

static void backward_chunk(const lm_head *c, const mics_op_call *call, float *wide, int64_t first)
{
    const int64_t R = mics_smaller(c->chunk_rows, c->rows - first);
    logits_of(c, first, R);
    losses_of(c, first, R, true);
    if (call->dparams[1])
        mics_cuda_bias_sum(c->at, c->bias_sum, c->logits, R, c->V, c->stride, first > 0,
                           c->block_sums);
    if (wide)
        backward_weight(c, wide, first, R, first > 0, true);
    else if (call->dparams[0])
        backward_weight(c, call->dparams[0], first, R, call->add_params[0] || first > 0, false);
    if (call->din) // takes the place of gathered rows
        backward_input(c, call->din, first, R);
}

static void backward(const mics_op_call *call)
{
    lm_head c = open_call(call);
    gather_counted(&c, call, rounds_chunks(&c, call));
    float *wide = wide_weight(&c, call);
    if (c.order && call->din)
        zero(&c, call->din, c.N * c.C, c.at->dtype);
    for (int64_t first = 0; first < c.rows; first += c.chunk_rows)
        backward_chunk(&c, call, wide, first);
    if (call->dparams[1])
        mics_cuda_round_add(c.at, call->dparams[1], c.bias_sum, c.V, call->add_params[1]);
    if (wide)
        mics_cuda_round_add(c.at, call->dparams[0], wide, c.V * c.C, call->add_params[0]);
}

static void logits(const mics_op_call *call)
{
    mics_cuda_gemm gemm = {.a = call->in[0], .b = call->params[0], .c = call->logits};
    gemm.transpose_b = true;
    gemm.M = call->shape.N;
    gemm.N = gemm.ldc = call->shape.params[0][0];
    gemm.K = gemm.lda = gemm.ldb = call->shape.params[0][1];
    mics_cuda_matmul(call->at, &gemm, call->at->workspace, call->at->workspace_bytes);
    if (call->params[1])
        mics_cuda_bias_add(call->at, call->logits, call->params[1], gemm.M, gemm.N, gemm.N);
}

const mics_op_kernels mics_cuda_lm_head_kernels = {
    .forward = forward, .backward = backward, .logits = logits};
