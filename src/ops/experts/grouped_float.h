// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of experts in fp32: as those of experts_cuda.h, with inputs rounded to TF32 or not.
#pragma once

#include "ops/experts/experts_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

void mics_cuda_experts_float_forward(const mics_cuda_experts_gemm *gemm,
                                     const mics_cuda_experts_rows *rows, bool tf32);
void mics_cuda_experts_float_input_gradient(const mics_cuda_experts_gemm *gemm,
                                            const mics_cuda_experts_rows *rows, bool tf32);
void mics_cuda_experts_float_weight_gradient(const mics_cuda_experts_gemm *gemm,
                                             const mics_cuda_experts_weights *weights, bool tf32);

#ifdef __cplusplus
}
#endif
