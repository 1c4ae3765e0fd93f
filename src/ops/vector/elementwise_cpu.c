// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums over flat arrays and over rows.
#include "ops/common/kernels_isa.h"
#include <string.h>

void MICS_OP(add)(float *y, const float *a, const float *b, int64_t elems)
{
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        int64_t end = begin + MICS_OP_BLOCK < elems ? begin + MICS_OP_BLOCK : elems;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i)
            y[i] = a[i] + b[i];
    }
}

void MICS_OP(accumulate)(const mics_exec *at, void *y, const void *x, int64_t elems)
{
    (void)at;
    MICS_OP(add)(y, y, x, elems);
}

static double sum_squares_part(const float *x, int64_t elems)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < elems; ++i)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

// A whole block is read at four places at once: four sums that do not wait for each other, four
// streams that the CPU fetches ahead.
static double sum_squares_block(const float *x, int64_t elems)
{
    enum { PART = MICS_OP_BLOCK / 4 };
    if (elems < MICS_OP_BLOCK)
        return sum_squares_part(x, elems);
    double a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
    for (int64_t i = 0; i < PART; ++i) {
        a += (double)x[i] * (double)x[i];
        b += (double)x[i + PART] * (double)x[i + PART];
        c += (double)x[i + 2 * PART] * (double)x[i + 2 * PART];
        d += (double)x[i + 3 * PART] * (double)x[i + 3 * PART];
    }
    return (a + b) + (c + d);
}

void MICS_OP(sum_squares)(const mics_exec *at, double *sum, const float *x, int64_t elems)
{
    (void)at;
    // A batch of block sums fits on the stack; batches and blocks are added in order.
    enum { BATCH_BLOCKS = 1024 };
    const int64_t batch = (int64_t)BATCH_BLOCKS * MICS_OP_BLOCK;
    double total = 0, sums[BATCH_BLOCKS];
    for (int64_t first = 0; first < elems; first += batch) {
        int64_t count = elems - first < batch ? elems - first : batch;
        int64_t blocks = (count + MICS_OP_BLOCK - 1) / MICS_OP_BLOCK;
#pragma omp parallel for if (count >= MICS_OP_PARALLEL)
        for (int64_t block = 0; block < blocks; ++block) {
            int64_t begin = block * MICS_OP_BLOCK;
            int64_t size = count - begin < MICS_OP_BLOCK ? count - begin : MICS_OP_BLOCK;
            sums[block] = sum_squares_block(x + first + begin, size);
        }
        for (int64_t block = 0; block < blocks; ++block)
            total += sums[block];
    }
    *sum += total;
}

// In token order, so the bits do not depend on threads.
void MICS_OP(sum_losses)(const mics_exec *at, double *sum, const float *loss_N, int64_t N)
{
    (void)at;
    double losses = 0;
    for (int64_t n = 0; n < N; n++)
        losses += (double)loss_N[n];
    *sum += losses;
}

void MICS_OP(sum_blocks)(const mics_exec *at, float *sum, const void *own, const void *blocks,
                         int32_t count, int64_t stride, int64_t elems, bool add_sum)
{
    (void)at;
    const float *first = own, *others = blocks;
    for (int64_t i = 0; i < elems; i++) {
        float value = first[i];
        for (int32_t block = 0; block < count; block++)
            value += others[block * stride + i];
        sum[i] = add_sum ? sum[i] + value : value;
    }
}

void MICS_OP(sum_blocks_rounded)(const mics_exec *at, void *out, const void *own,
                                 const void *blocks, int32_t count, int64_t stride, int64_t elems)
{
    MICS_OP(sum_blocks)(at, out, own, blocks, count, stride, elems, false);
}

void MICS_OP(copy_fp32)(const mics_exec *at, void *out, const float *x, int64_t elems)
{
    (void)at;
    memcpy(out, x, (size_t)elems * sizeof(float));
}

void MICS_OP(copy_wide)(const mics_exec *at, float *out, const void *x, int64_t elems)
{
    (void)at;
    memcpy(out, x, (size_t)elems * sizeof(float));
}

void MICS_OP(sum_rows)(float *dst_C, const float *rows_RC, int64_t R, int64_t C, int64_t row_stride,
                       bool add)
{
    if (!add)
        memset(dst_C, 0, (size_t)C * sizeof *dst_C);
    // Four rows at a time: dst is read and written a quarter as often.
    int64_t r = 0;
    for (; r + 4 <= R; r += 4) {
        const float *row = rows_RC + r * row_stride;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dst_C[c] += ((row[c] + row[c + row_stride]) +
                         (row[c + 2 * row_stride] + row[c + 3 * row_stride]));
    }
    for (; r < R; ++r) {
        const float *row = rows_RC + r * row_stride;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dst_C[c] += row[c];
    }
}
