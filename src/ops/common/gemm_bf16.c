// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of bf16 numbers: by whatever is fast on this CPU.
//
// For CPUs whose library has none of bf16, as those with AVX2: blocks of A and B are widened into the
// GEMM's space, as they are stored, and sums of a block of C that is bf16 stay there until the last
// depth is added.
#define MICS_ELEM_BF16
#include "ops/common/elem.h"
#include "ops/common/gemm_dnnl.h"
#include "ops/common/gemm_packed.h"
#include "ops/gemm/def.h"

typedef struct widened {
    const mics_gemm_spec *gemm;
    int32_t threads;
    int64_t rows, columns, depth; // of a block
    float *a, *b, *sums;
} widened;

// Below so many numbers a team of threads costs more than it saves.
enum { ALONE = 1 << 14 };

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

// Blocks as large as the space allows: it is for packed pairs, half as large as widened numbers.
static widened widened_blocks(const mics_exec *at, const mics_gemm_spec *gemm)
{
    const int64_t floats = mics_gemm_floats_bf16(gemm->M, gemm->N, gemm->K);
    widened w = {.gemm = gemm, .threads = at->threads, .rows = gemm->M, .columns = gemm->N};
    w.depth = smaller(gemm->K, MICS_GEMM_DEPTH);
    while ((w.rows + w.columns) * w.depth + (gemm->wide ? 0 : w.rows * w.columns) > floats)
        *(w.rows > w.columns ? &w.rows : &w.columns) /= 2;
    w.a = gemm->space;
    w.b = w.a + w.rows * w.depth;
    w.sums = w.b + w.columns * w.depth;
    return w;
}

static int32_t team_of(const widened *w, int64_t numbers)
{
    return numbers < ALONE ? 1 : w->threads;
}

static void widen(const widened *w, float *to, const mics_elem *from, int64_t stride, int64_t rows,
                  int64_t columns)
{
    const int32_t threads = team_of(w, rows * columns);
    (void)threads; // used by the pragma alone, which may be off
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c)
            to[r * columns + c] = mics_load(from[r * stride + c]);
    }
}

// Of a matrix as it is stored, or transposed: rows from `row` on, columns from `column` on.
static void widen_block(const widened *w, float *to, const mics_elem *from, int64_t stride,
                        bool transposed, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    if (transposed)
        widen(w, to, from + column * stride + row, stride, columns, rows);
    else
        widen(w, to, from + row * stride + column, stride, rows, columns);
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

// A block of C is summed up.
static void round_block(const widened *w, int64_t m, int64_t rows, int64_t n, int64_t columns)
{
    const mics_elem *bias = w->gemm->bias;
    const int32_t threads = team_of(w, rows * columns);
    (void)threads;
#pragma omp parallel for num_threads(threads)
    for (int64_t r = 0; r < rows; ++r) {
        float *sum = w->sums + r * columns;
        for (int64_t j = 0; bias && j < columns; ++j)
            sum[j] += mics_load(bias[n + j]);
        store_part(w->gemm, m + r, n, sum, columns);
    }
}

// A depth of a block of C, whose B is widened.
static void add_depth(const widened *w, int64_t m, int64_t n, int64_t k)
{
    const mics_gemm_spec *g = w->gemm;
    const int64_t rows = smaller(g->M - m, w->rows), columns = smaller(g->N - n, w->columns);
    const int64_t depth = smaller(g->K - k, w->depth);
    const bool adds = k > 0 || (g->wide && g->add);
    widen_block(w, w->a, g->a, g->lda, g->transpose_a, m, rows, k, depth);
    mics_gemm(g->transpose_a, g->transpose_b, rows, columns, depth, 1, w->a,
              g->transpose_a ? rows : depth, w->b, g->transpose_b ? depth : columns, adds ? 1 : 0,
              g->wide ? (float *)g->c + m * g->ldc + n : w->sums, g->wide ? g->ldc : columns);
    if (!g->wide && k + depth == g->K)
        round_block(w, m, rows, n, columns);
}

void mics_gemm_bf16_widened(const mics_exec *at, const mics_gemm_spec *gemm)
{
    const widened w = widened_blocks(at, gemm);
    for (int64_t n = 0; n < gemm->N; n += w.columns)
        for (int64_t m = 0; m < gemm->M; m += w.rows)
            for (int64_t k = 0; k < gemm->K; k += w.depth) {
                // Of one depth it is there since the first rows.
                if (m == 0 || w.depth < gemm->K)
                    widen_block(&w, w.b, gemm->b, gemm->ldb, gemm->transpose_b, k,
                                smaller(gemm->K - k, w.depth), n, smaller(gemm->N - n, w.columns));
                add_depth(&w, m, n, k);
            }
}

void mics_gemm_bf16(const mics_exec *at, const mics_gemm_spec *gemm)
{
    if (mics_gemm_has_pairs() && mics_gemm_packed(at, gemm))
        return;
    if (!mics_gemm_dnnl(at, gemm))
        mics_gemm_bf16_widened(at, gemm);
}
