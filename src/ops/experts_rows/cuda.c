// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows by grouped GEMMs (experts/grouped.cuh), which read and write them where they lie: those of an
// expert are a run in each block. Its gradient adds up the blocks in the order of their ranks, and
// is rounded once.
#include "ops/common/cuda_ops.h"
#include "ops/experts/def.h"
#include "ops/experts/experts_cuda.h"

static mics_cuda_experts_gemm gemm_of(const mics_op_call *call, const mics_cuda_routes *routes)
{
    const mics_op_shape *s = &call->shape;
    const int64_t rows = mics_experts_block_rows(s), I = s->params[0][1];
    return (mics_cuda_experts_gemm){.at = call->at,
                                    .routes = routes,
                                    .experts = mics_experts_kept(s->op),
                                    .rows = rows * s->op->expert_ranks,
                                    .I = I,
                                    .O = s->params[0][0],
                                    .expert_elems = s->expert_elems,
                                    .weight = call->params[0],
                                    .blocks = s->op->expert_ranks,
                                    .x_gap = s->N * s->in[0] / s->op->expert_ranks - rows * I};
}

static void forward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_came(call);
    const mics_cuda_experts_gemm gemm = gemm_of(call, &routes);
    mics_cuda_experts_forward(&gemm, &(mics_cuda_experts_rows){.a = call->in[0], .c = call->out});
}

static void backward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_came(call);
    const mics_cuda_experts_gemm gemm = gemm_of(call, &routes);
    const mics_cuda_experts_weights weights = {.dy = call->dout,
                                               .x = call->in[0],
                                               .dweight = call->dparams[0],
                                               .add = call->add_params[0]};
    if (call->dparams[0] != NULL)
        mics_cuda_experts_weight_gradient(&gemm, &weights);
    if (call->din != NULL)
        mics_cuda_experts_input_gradient(
            &gemm, &(mics_cuda_experts_rows){.a = call->dout, .c = call->din});
}

const mics_op_kernels mics_cuda_experts_rows_kernels = {.forward = forward, .backward = backward};
