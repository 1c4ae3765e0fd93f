// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs as kernels ask for them, and what stands behind them where the matrix library cannot: it
// needs memory for packing.
#pragma once

#include "ops/kernels.h"

// A term of low rank that a GEMM adds to columns of its C before it rounds them, as an adapter is:
// A (M, rank) B^T, B (columns, rank).
typedef struct mics_gemm_tail {
    const void *a, *b;
    int64_t lda, rank, first, columns; // of C: columns from `first` on
} mics_gemm_tail;

// Row-major C (M, N) (+)= op(A) op(B) + bias. Numbers are of the kernels' dtype. Sums are fp32, and
// of bf16 rounded once. lda, ldb, ldc: elements between rows as stored.
typedef struct mics_gemm_spec {
    bool transpose_a, transpose_b, add;
    bool wide; // of bf16: C is fp32; no bias then
    int64_t M, N, K, lda, ldb, ldc;
    const void *a, *b;
    const void *bias; // (optional) (N)
    void *c;
    void *space; // of bf16: as many floats as mics_gemm_floats_bf16 says
    // (optional) of bf16, where mics_gemm_takes_tails(); none overlap; more space, of
    // mics_gemm_tail_floats()
    mics_gemm_tail tails[MICS_LORA_SLICES];
    int32_t tail_count;
} mics_gemm_spec;

/* A GEMM of bf16 numbers.
 *
 * Needs:   M, N, K >= 1; C apart from the others; no bias where it adds.
 */
void mics_gemm_bf16(const mics_exec *at, const mics_gemm_spec *gemm);

/* mics_gemm_bf16() by mics_gemm() of widened blocks, which are in its space; cannot fail. */
void mics_gemm_bf16_widened(const mics_exec *at, const mics_gemm_spec *gemm);

/* mics_gemm() by plain loops: slow, needs no memory, cannot fail. */
void mics_gemm_plain(bool transpose_a, bool transpose_b, int64_t M, int64_t N, int64_t K,
                     float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                     float beta, float *c, int64_t ldc);
