// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One GEMM for the rows of each expert in each block, where they lie. An expert's gradient adds up the
// blocks in the order of their ranks.
#include "ops/common/experts_travel.h"

typedef struct rows_call {
    const mics_op_call *call;
    int64_t I, O;
    experts_blocks x, y;
    int32_t *runs;
    float *gemm;
} rows_call;

static rows_call rows_of(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    const int64_t I = s->params[0][1];
    rows_call r = {.call = call,
                   .I = I,
                   .O = s->params[0][0],
                   .x = experts_blocks_of(call, I, s->in[0]),
                   .y = experts_blocks_of(call, s->params[0][0], s->out),
                   .runs = call->at->workspace};
    r.gemm = (float *)call->at->workspace + mics_experts_runs_floats(s->op);
    experts_runs(call, r.runs);
    return r;
}

static const void *weight_of(const rows_call *r, int32_t expert)
{
    return (const mics_elem *)r->call->params[0] + expert * r->call->shape.expert_elems;
}

typedef void run_gemm(const rows_call *r, int32_t expert, int32_t block, int64_t first,
                      int64_t count);

static void for_each_run(const rows_call *r, run_gemm *gemm)
{
    const mics_op *op = r->call->shape.op;
    const int32_t kept = mics_experts_kept(op);
    for (int32_t e = 0; e < kept; ++e)
        for (int32_t b = 0; b < op->expert_ranks; ++b) {
            const int32_t *run = r->runs + b * (kept + 1) + e;
            if (run[1] > run[0])
                gemm(r, e, b, run[0], run[1] - run[0]);
        }
}

static void multiply(const rows_call *r, int32_t expert, int32_t block, int64_t first,
                     int64_t count)
{
    const mics_gemm_spec gemm = {
        .transpose_b = true,
        .M = count,
        .N = r->O,
        .K = r->I,
        .a = (const mics_elem *)r->call->in[0] + experts_row_at(r->x, block, first),
        .lda = r->I,
        .b = weight_of(r, expert),
        .ldb = r->I,
        .c = (mics_elem *)r->call->out + experts_row_at(r->y, block, first),
        .space = r->gemm,
        .ldc = r->O};
    MICS_OP(gemm)(r->call->at, &gemm);
}

static void input_gradient(const rows_call *r, int32_t expert, int32_t block, int64_t first,
                           int64_t count)
{
    const mics_gemm_spec gemm = {
        .M = count,
        .N = r->I,
        .K = r->O,
        .a = (const mics_elem *)r->call->dout + experts_row_at(r->y, block, first),
        .lda = r->O,
        .b = weight_of(r, expert),
        .ldb = r->I,
        .c = (mics_elem *)r->call->din + experts_row_at(r->x, block, first),
        .space = r->gemm,
        .ldc = r->I};
    MICS_OP(gemm)(r->call->at, &gemm);
}

static void weight_gradient(const rows_call *r, int32_t expert, int32_t block, int64_t first,
                            int64_t count)
{
    const mics_gemm_spec gemm = {
        .transpose_a = true,
        .add = true,
        .M = r->O,
        .N = r->I,
        .K = count,
        .a = (const mics_elem *)r->call->dout + experts_row_at(r->y, block, first),
        .lda = r->O,
        .b = (const mics_elem *)r->call->in[0] + experts_row_at(r->x, block, first),
        .ldb = r->I,
        .c = (mics_elem *)r->call->dparams[0] + expert * r->call->shape.expert_elems,
        .space = r->gemm,
        .ldc = r->I};
    MICS_OP(gemm)(r->call->at, &gemm);
}

static void forward(const mics_op_call *call)
{
    const rows_call r = rows_of(call);
    for_each_run(&r, multiply);
}

static void backward(const mics_op_call *call)
{
    const rows_call r = rows_of(call);
    const bool clears = call->dparams[0] != NULL && !call->add_params[0];
    for (int32_t e = 0; clears && e < mics_experts_kept(call->shape.op); ++e)
        memset((mics_elem *)call->dparams[0] + e * call->shape.expert_elems, 0,
               (size_t)(r.O * r.I) * sizeof(mics_elem));
    if (call->dparams[0] != NULL)
        for_each_run(&r, weight_gradient);
    if (call->din != NULL)
        for_each_run(&r, input_gradient);
}

const mics_op_kernels MICS_OP(experts_rows_kernels) = {.forward = forward, .backward = backward};
