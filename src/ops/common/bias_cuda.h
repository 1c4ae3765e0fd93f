// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Biases of linears where no GEMM takes them along (bias_cuda.cu), and sums of fp32 GEMMs.
#pragma once

#include "ops/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[n] += bias, rounded once more. Rows begin `stride` numbers apart. */
void mics_cuda_bias_add(const mics_exec *at, void *y_NO, const void *bias_O, int64_t N, int64_t O,
                        int64_t stride);

/* dbias (+)= sum of dy's rows, `stride` numbers apart: in fp32, in fixed blocks of rows, rounded once. workspace: O floats
 * for each of at most MICS_LINEAR_ACCELERATOR_BLOCKS blocks (ops/linear/def.h). */
void mics_cuda_bias_backward(const mics_exec *at, void *dbias_O, const void *dy_NO, int64_t N,
                             int64_t O, int64_t stride, bool add, void *workspace);

/* The same, in fp32: what is summed over several calls is rounded once, by mics_cuda_round_add. */
void mics_cuda_bias_sum(const mics_exec *at, float *sum_O, const void *dy_NO, int64_t N, int64_t O,
                        int64_t stride, bool add, void *workspace);

/* out (of the call's dtype) (+)= sum, rounded once. */
void mics_cuda_round_add(const mics_exec *at, void *out, const float *sum, int64_t elems, bool add);

#ifdef __cplusplus
}
#endif
