// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of experts in bf16 and fp16, and which kernels a dtype has.
#include "ops/common/matmul_cuda.h"
#include "ops/experts/grouped.cuh"
#include "ops/experts/grouped_float.h"

typedef half_math<__nv_bfloat16> bf16_math;
typedef half_math<__half> fp16_math;

void mics_cuda_experts_forward(const mics_cuda_experts_gemm *g, const mics_cuda_experts_rows *r)
{
    if (g->at->dtype == MICS_DTYPE_FP32)
        mics_cuda_experts_float_forward(g, r, mics_cuda_matmul_has_tf32(g->at->device));
    else if (g->at->dtype == MICS_DTYPE_BF16)
        launch_rows<bf16_math, true, __nv_bfloat16>(g, r);
    else
        launch_rows<fp16_math, true, __half>(g, r);
}

void mics_cuda_experts_scores(const mics_cuda_experts_gemm *g, const mics_cuda_experts_rows *r)
{
    if (g->at->dtype == MICS_DTYPE_FP32)
        mics_cuda_experts_float_forward(g, r, false);
    else if (g->at->dtype == MICS_DTYPE_BF16)
        launch_rows<bf16_math, true, float>(g, r);
    else
        launch_rows<fp16_math, true, float>(g, r);
}

void mics_cuda_experts_input_gradient(const mics_cuda_experts_gemm *g,
                                      const mics_cuda_experts_rows *r)
{
    if (g->at->dtype == MICS_DTYPE_FP32)
        mics_cuda_experts_float_input_gradient(g, r, mics_cuda_matmul_has_tf32(g->at->device));
    else if (g->at->dtype == MICS_DTYPE_BF16)
        launch_rows<bf16_math, false, __nv_bfloat16>(g, r);
    else
        launch_rows<fp16_math, false, __half>(g, r);
}

void mics_cuda_experts_weight_gradient(const mics_cuda_experts_gemm *g,
                                       const mics_cuda_experts_weights *w)
{
    if (g->at->dtype == MICS_DTYPE_FP32)
        mics_cuda_experts_float_weight_gradient(g, w, mics_cuda_matmul_has_tf32(g->at->device));
    else if (g->at->dtype == MICS_DTYPE_BF16)
        launch_weights<bf16_math>(g, w);
    else
        launch_weights<fp16_math>(g, w);
}
