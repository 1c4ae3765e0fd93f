// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Products with a weight and its bias. Shapes: see mics/kernels.h. W^T of an OUT_IN weight is its transpose as stored.
#include "ops/common/kernels_isa.h"
#include "ops/linear/def.h"

void MICS_OP(linear_forward)(float *y_NO, const float *x_NI, const float *weight,
                             const float *bias_O, mics_weight_order order, int64_t N, int64_t I,
                             int64_t O)
{
    bool out_in = order == MICS_WEIGHT_OUT_IN;
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

void MICS_OP(linear_backward)(float *dx_NI, float *dweight, float *dbias_O, const float *dy_NO,
                              const float *x_NI, const float *weight, mics_weight_order order,
                              int64_t N, int64_t I, int64_t O, bool add_dx, bool add_params,
                              float *workspace)
{
    const float beta_dx = add_dx ? 1.0F : 0.0F, beta = add_params ? 1.0F : 0.0F;
    if (order == MICS_WEIGHT_IN_OUT) {
        if (dx_NI)
            mics_gemm(false, true, N, I, O, 1.0F, dy_NO, O, weight, O, beta_dx, dx_NI, I);
        mics_gemm(true, false, I, O, N, 1.0F, x_NI, I, dy_NO, O, beta, dweight, O);
    } else {
        if (dx_NI)
            mics_gemm(false, false, N, I, O, 1.0F, dy_NO, O, weight, I, beta_dx, dx_NI, I);
        mics_gemm(true, false, O, I, N, 1.0F, dy_NO, O, x_NI, I, beta, dweight, I);
    }
    if (dbias_O)
        bias_backward(dbias_O, dy_NO, N, O, add_params, workspace);
}
