// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums of flat fp32 arrays in fp64.
#include "ops/common/kernels_isa.h"

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

// Of numbers in bf16 by way of fp32, so that the order of sums is the same.
static double sum_squares_bf16(const uint16_t *x, int64_t elems)
{
    float wide[MICS_OP_BLOCK];
    MICS_ISA_OP(unpack_bf16)(wide, x, elems);
    return sum_squares_block(wide, elems);
}

// x: fp32, or bf16 where it is `halved`.
static void sum_all(double *sum, const void *x, bool halved, int64_t elems)
{
    const float *whole = x;
    const uint16_t *halves = x;
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
            sums[block] = halved ? sum_squares_bf16(halves + first + begin, size)
                                 : sum_squares_block(whole + first + begin, size);
        }
        for (int64_t block = 0; block < blocks; ++block)
            total += sums[block];
    }
    *sum += total;
}

void MICS_ISA_OP(sum_squares)(const mics_exec *at, double *sum, const float *x, int64_t elems)
{
    (void)at;
    sum_all(sum, x, false, elems);
}

void MICS_ISA_OP(sum_squares_bf16)(const mics_exec *at, double *sum, const void *x, int64_t elems)
{
    (void)at;
    sum_all(sum, x, true, elems);
}

// In token order, so the bits do not depend on threads.
void MICS_ISA_OP(sum_losses)(const mics_exec *at, double *sum, const float *loss_N, int64_t N)
{
    (void)at;
    double losses = 0;
    for (int64_t n = 0; n < N; n++)
        losses += (double)loss_N[n];
    *sum += losses;
}
