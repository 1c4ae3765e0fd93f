// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of experts in fp32, in plain arithmetic or by TF32.
#include "ops/experts/grouped.cuh"
#include "ops/experts/grouped_float.h"

void mics_cuda_experts_float_forward(const mics_cuda_experts_gemm *g,
                                     const mics_cuda_experts_rows *r, bool tf32)
{
    if (tf32)
        launch_rows<tf32_math, true, float>(g, r);
    else
        launch_rows<fp32_math, true, float>(g, r);
}

void mics_cuda_experts_float_input_gradient(const mics_cuda_experts_gemm *g,
                                            const mics_cuda_experts_rows *r, bool tf32)
{
    if (tf32)
        launch_rows<tf32_math, false, float>(g, r);
    else
        launch_rows<fp32_math, false, float>(g, r);
}

void mics_cuda_experts_float_weight_gradient(const mics_cuda_experts_gemm *g,
                                             const mics_cuda_experts_weights *w, bool tf32)
{
    if (tf32)
        launch_weights<tf32_math>(g, w);
    else
        launch_weights<fp32_math>(g, w);
}
