// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of bf16 numbers: by whatever is fast on this CPU.
#define MICS_ELEM_BF16
#include "ops/common/elem.h"
#include "ops/common/gemm_dnnl.h"
#include "ops/common/gemm_packed.h"

enum { PART = 256 }; // columns whose sums lie on the stack

// Sums of a row of C, of the columns from n on.
static void sum_part(float *sum, const mics_gemm_spec *gemm, int64_t m, int64_t n, int64_t columns)
{
    const mics_elem *a = gemm->a, *b = gemm->b, *bias = gemm->bias;
    const int64_t a_row = gemm->transpose_a ? 1 : gemm->lda;
    const int64_t a_column = gemm->transpose_a ? gemm->lda : 1;
    const int64_t b_row = gemm->transpose_b ? 1 : gemm->ldb;
    const int64_t b_column = gemm->transpose_b ? gemm->ldb : 1;
    for (int64_t j = 0; j < columns; ++j)
        sum[j] = bias ? mics_load(bias[n + j]) : 0.0F;
    for (int64_t k = 0; k < gemm->K; ++k) {
        const float factor = mics_load(a[m * a_row + k * a_column]);
        const mics_elem *row = b + k * b_row + n * b_column;
#pragma omp simd
        for (int64_t j = 0; j < columns; ++j)
            sum[j] += factor * mics_load(row[j * b_column]);
    }
}

static void store_part(const mics_gemm_spec *gemm, int64_t m, int64_t n, const float *sum,
                       int64_t columns)
{
    mics_elem *c = (mics_elem *)gemm->c + m * gemm->ldc + n;
    float *wide = (float *)gemm->c + m * gemm->ldc + n;
    for (int64_t j = 0; j < columns; ++j) {
        if (gemm->wide)
            wide[j] = gemm->add ? wide[j] + sum[j] : sum[j];
        else
            c[j] = mics_store(gemm->add ? mics_load(c[j]) + sum[j] : sum[j]);
    }
}

void mics_gemm_bf16_plain(const mics_exec *at, const mics_gemm_spec *gemm)
{
    const int32_t threads = at->threads;
    (void)threads; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads)
    for (int64_t m = 0; m < gemm->M; ++m) {
        float sum[PART];
        for (int64_t n = 0; n < gemm->N; n += PART) {
            const int64_t columns = gemm->N - n < PART ? gemm->N - n : PART;
            sum_part(sum, gemm, m, n, columns);
            store_part(gemm, m, n, sum, columns);
        }
    }
}

void mics_gemm_bf16(const mics_exec *at, const mics_gemm_spec *gemm)
{
    if (mics_gemm_has_pairs() && mics_gemm_packed(at, gemm))
        return;
    if (!mics_gemm_dnnl(at, gemm))
        mics_gemm_bf16_plain(at, gemm);
}
