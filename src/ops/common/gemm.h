// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What stands behind mics_gemm() when the matrix library cannot: it needs memory for packing.
#ifndef MICS_OP_GEMM_H
#define MICS_OP_GEMM_H

#include <stdbool.h>
#include <stdint.h>

/* mics_gemm() by plain loops: slow, needs no memory, cannot fail. */
void mics_gemm_plain(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K,
                     float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                     float beta, float *c, int64_t ldc);

#endif
