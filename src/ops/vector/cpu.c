// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums over flat arrays and over rows.
#include "ops/common/kernels_isa.h"
#include <string.h>

void MICS_OP(add)(mics_elem *y, const mics_elem *a, const mics_elem *b, int64_t elems)
{
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        int64_t end = begin + MICS_OP_BLOCK < elems ? begin + MICS_OP_BLOCK : elems;
#pragma omp simd
        for (int64_t i = begin; i < end; ++i)
            y[i] = mics_store(mics_load(a[i]) + mics_load(b[i]));
    }
}

void MICS_OP(accumulate)(const mics_exec *at, void *y, const void *x, int64_t elems)
{
    (void)at;
    MICS_OP(add)(y, y, x, elems);
}

void MICS_OP(sum_blocks)(const mics_exec *at, float *sum, const void *own, const void *blocks,
                         int32_t count, int64_t stride, int64_t elems, bool add_sum)
{
    (void)at;
    const mics_elem *first = own, *others = blocks;
    for (int64_t i = 0; i < elems; i++) {
        float value = mics_load(first[i]);
        for (int32_t block = 0; block < count; block++)
            value += mics_load(others[block * stride + i]);
        sum[i] = add_sum ? sum[i] + value : value;
    }
}

void MICS_OP(sum_blocks_rounded)(const mics_exec *at, void *out, const void *own,
                                 const void *blocks, int32_t count, int64_t stride, int64_t elems)
{
    (void)at;
    const mics_elem *first = own, *others = blocks;
    mics_elem *sum = out;
    for (int64_t i = 0; i < elems; i++) {
        float value = mics_load(first[i]);
        for (int32_t block = 0; block < count; block++)
            value += mics_load(others[block * stride + i]);
        sum[i] = mics_store(value);
    }
}

void MICS_OP(round)(const mics_exec *at, void *out, const float *x, int64_t elems)
{
    mics_elem *to = out;
    (void)at;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        to[i] = mics_store(x[i]);
}

void MICS_OP(widen)(const mics_exec *at, float *out, const void *x, int64_t elems)
{
    const mics_elem *from = x;
    (void)at;
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        out[i] = mics_load(from[i]);
}

void MICS_OP(sum_rows)(float *dst_C, const mics_elem *rows_RC, int64_t R, int64_t C)
{
    memset(dst_C, 0, (size_t)C * sizeof *dst_C);
    // Four rows at a time: dst is read and written a quarter as often.
    int64_t r = 0;
    for (; r + 4 <= R; r += 4) {
        const mics_elem *row = rows_RC + r * C;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dst_C[c] += ((mics_load(row[c]) + mics_load(row[c + C])) +
                         (mics_load(row[c + 2 * C]) + mics_load(row[c + 3 * C])));
    }
    for (; r < R; ++r) {
        const mics_elem *row = rows_RC + r * C;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dst_C[c] += mics_load(row[c]);
    }
}

enum { PART_COLUMNS = 128 }; // whose sums stay in the nearest cache

void MICS_OP(sum_parts)(mics_elem *dst_C, const float *parts_RC, int64_t R, int64_t C,
                        int64_t row_stride, bool add)
{
    for (int64_t first = 0; first < C; first += PART_COLUMNS) {
        const int64_t columns = C - first < PART_COLUMNS ? C - first : PART_COLUMNS;
        float sum[PART_COLUMNS];
        for (int64_t c = 0; c < columns; ++c)
            sum[c] = add ? mics_load(dst_C[first + c]) : 0.0F;
        int64_t r = 0;
        for (; r + 4 <= R; r += 4) {
            const float *row = parts_RC + r * row_stride + first;
#pragma omp simd
            for (int64_t c = 0; c < columns; ++c)
                sum[c] += ((row[c] + row[c + row_stride]) +
                           (row[c + 2 * row_stride] + row[c + 3 * row_stride]));
        }
        for (; r < R; ++r) {
            const float *row = parts_RC + r * row_stride + first;
#pragma omp simd
            for (int64_t c = 0; c < columns; ++c)
                sum[c] += row[c];
        }
#pragma omp simd
        for (int64_t c = 0; c < columns; ++c)
            dst_C[first + c] = mics_store(sum[c]);
    }
}
