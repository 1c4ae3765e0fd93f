// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokens are copied to their rows, and multiplied expert by expert.
#include "ops/common/decode.h"
#include "ops/common/experts_isa.h"

static experts_gemm gemm_of(const mics_op_call *call, const experts_space *space)
{
    const mics_experts e = call->shape.op->experts;
    return (experts_gemm){.at = call->at,
                          .space = space,
                          .count = e.count,
                          .I = call->shape.in[0],
                          .O = call->shape.out / e.chosen,
                          .stride = call->shape.expert_elems,
                          .weight = call->params[0]};
}

static void forward(const mics_op_call *call)
{
    const int64_t I = call->shape.in[0];
    const experts_space space = experts_space_of(call, I);
    const experts_gemm gemm = gemm_of(call, &space);
    experts_scatter(call, space.rows, call->in[0], I);
    experts_forward(&gemm, call->out, space.rows);
}

// dx (N, I) (+)= the sum of a token's rows, best expert first.
static void gather(const mics_op_call *call, const mics_elem *rows)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t N = call->shape.N, I = call->shape.in[0];
    mics_elem *dx = call->din;
#pragma omp parallel for if (N * I >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const int32_t *from = mics_route_rows(call->routes, e, n);
        mics_elem *dx_I = dx + n * I;
#pragma omp simd
        for (int64_t i = 0; i < I; ++i) {
            float sum = call->add_din ? mics_load(dx_I[i]) : 0.0F;
            for (int32_t j = 0; j < e.chosen; ++j)
                sum += mics_load(rows[from[j] * I + i]);
            dx_I[i] = mics_store(sum);
        }
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t I = call->shape.in[0];
    const experts_space space = experts_space_of(call, I);
    const experts_gemm gemm = gemm_of(call, &space);
    if (call->dparams[0] != NULL) {
        experts_scatter(call, space.rows, call->in[0], I);
        experts_weight_gradient(&gemm, call->dparams[0], call->dout, space.rows,
                                call->add_params[0]);
    }
    if (call->din == NULL)
        return;
    experts_input_gradient(&gemm, space.rows, call->dout);
    gather(call, space.rows);
}

const mics_op_kernels MICS_OP(experts_in_kernels) = {
    .forward = forward,
    .backward = backward,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(experts_in_decode) : NULL,
    .decode_divides = true};
