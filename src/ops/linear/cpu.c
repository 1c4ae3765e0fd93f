// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs with a weight and its bias. Shapes: see mics/kernels.h. W^T of an OUT_IN weight is its
// transpose as stored.
#include "ops/common/kernels_isa.h"
#include "ops/linear/def.h"

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, I = call->shape.in[0], O = call->shape.out;
    const float *x_NI = call->in[0], *weight = call->params[0], *bias_O = call->params[1];
    const bool out_in = call->shape.op->weight_out_in;
    float *y_NO = call->out;
    mics_gemm(false, out_in, N, O, I, 1.0F, x_NI, I, weight, out_in ? I : O, 0.0F, y_NO, O);
    if (!bias_O)
        return;
#pragma omp parallel for if (N * O >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        float *y_O = y_NO + n * O;
#pragma omp simd
        for (int64_t o = 0; o < O; ++o)
            y_O[o] += bias_O[o];
    }
}

static void bias_backward(float *dbias_O, const float *dy_NO, int64_t N, int64_t O, bool add,
                          float *workspace)
{
    int64_t blocks = N < MICS_LINEAR_BLOCKS ? N : MICS_LINEAR_BLOCKS;
#pragma omp parallel for if (N * O >= MICS_OP_PARALLEL)
    for (int64_t block = 0; block < blocks; ++block) {
        int64_t begin = block * N / blocks, end = (block + 1) * N / blocks;
        MICS_OP(sum_rows)(workspace + block * O, dy_NO + begin * O, end - begin, O, O, false);
    }
    MICS_OP(sum_rows)(dbias_O, workspace, blocks, O, O, add);
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, I = call->shape.in[0], O = call->shape.out;
    const float *dy_NO = call->dout, *x_NI = call->in[0], *weight = call->params[0];
    float *dx_NI = call->din, *dweight = call->dparams[0];
    const float beta_dx = call->add_din ? 1.0F : 0.0F, beta = call->add_params[0] ? 1.0F : 0.0F;
    if (!call->shape.op->weight_out_in) {
        if (dx_NI)
            mics_gemm(false, true, N, I, O, 1.0F, dy_NO, O, weight, O, beta_dx, dx_NI, I);
        mics_gemm(true, false, I, O, N, 1.0F, x_NI, I, dy_NO, O, beta, dweight, O);
    } else {
        if (dx_NI)
            mics_gemm(false, false, N, I, O, 1.0F, dy_NO, O, weight, I, beta_dx, dx_NI, I);
        mics_gemm(true, false, O, I, N, 1.0F, dy_NO, O, x_NI, I, beta, dweight, I);
    }
    if (call->dparams[1])
        bias_backward(call->dparams[1], dy_NO, N, O, call->add_params[0], call->at->workspace);
}

const mics_op_kernels MICS_OP(linear_kernels) = {.forward = forward, .backward = backward};
