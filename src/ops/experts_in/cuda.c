// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows by grouped GEMMs (experts/grouped.cuh), which read tokens where they lie. Only the rows of
// the input's gradient are written before they are added up by token.
#include "ops/common/cuda_ops.h"
#include "ops/experts/experts_cuda.h"

static mics_cuda_experts_gemm gemm_of(const mics_op_call *call, const mics_cuda_routes *routes)
{
    const mics_experts e = call->shape.op->experts;
    return (mics_cuda_experts_gemm){.at = call->at,
                                    .routes = routes,
                                    .experts = e.count,
                                    .rows = call->shape.N * e.chosen,
                                    .I = call->shape.in[0],
                                    .O = call->shape.out / e.chosen,
                                    .expert_elems = call->shape.expert_elems,
                                    .weight = call->params[0]};
}

static void forward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    const mics_cuda_experts_gemm gemm = gemm_of(call, &routes);
    mics_cuda_experts_forward(
        &gemm, &(mics_cuda_experts_rows){.a = call->in[0], .by_token = true, .c = call->out});
}

static void backward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    const mics_cuda_experts_gemm gemm = gemm_of(call, &routes);
    const mics_cuda_experts_weights weights = {.dy = call->dout,
                                               .x = call->in[0],
                                               .by_token = true,
                                               .dweight = call->dparams[0],
                                               .add = call->add_params[0]};
    if (call->dparams[0] != NULL)
        mics_cuda_experts_weight_gradient(&gemm, &weights);
    if (call->din == NULL)
        return;
    mics_cuda_experts_input_gradient(&gemm,
                                     &(mics_cuda_experts_rows){.a = call->dout, .c = routes.rows});
    mics_cuda_experts_add_up(
        call, &(mics_cuda_experts_sum){
                  .y = call->din, .rows = routes.rows, .width = gemm.I, .add = call->add_din});
}

const mics_op_kernels mics_cuda_experts_in_kernels = {.forward = forward, .backward = backward};
