// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of the kernels' dtype.
#include "ops/common/kernels_isa.h"

static void add_bias(const mics_gemm_spec *gemm)
{
    const int64_t M = gemm->M, N = gemm->N;
    const float *bias_N = gemm->bias;
    float *c = gemm->c;
#pragma omp parallel for if (M * N >= MICS_OP_PARALLEL)
    for (int64_t m = 0; m < M; ++m) {
        float *c_N = c + m * gemm->ldc;
#pragma omp simd
        for (int64_t n = 0; n < N; ++n)
            c_N[n] += bias_N[n];
    }
}

void MICS_OP(gemm)(const mics_exec *at, const mics_gemm_spec *gemm)
{
    if (!MICS_ELEM_FP32) {
        mics_gemm_bf16(at, gemm);
        return;
    }
    mics_gemm(gemm->transpose_a, gemm->transpose_b, gemm->M, gemm->N, gemm->K, 1.0F, gemm->a,
              gemm->lda, gemm->b, gemm->ldb, gemm->add ? 1.0F : 0.0F, gemm->c, gemm->ldc);
    if (gemm->bias)
        add_bias(gemm);
}
