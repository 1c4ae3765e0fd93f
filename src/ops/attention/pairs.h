// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of attention's small tiles by dots of bf16 pairs, where the CPU has them, and not AMX.
// Numbers are paired along the sum: those of A (M, K) as they lie, or made so; B's pairs are
// (K / 2, N), with 0 behind the last number of an odd K. Sums are in fp32; denormals count as 0. The
// build picks pairs_avx512.c or pairs_none.c.
#pragma once

#include "ops/attention/def.h"
#include "ops/attention/triangle.h"

// A: numbers from one row to the next, and from one pair to the next.
typedef struct mics_paired {
    const void *data;
    int64_t row, pair;
} mics_paired;

typedef struct mics_attention_pairs {
    /* c (M, N) (+)= A (M, K) b (K / 2, N), without the parts that `part` names. N and ldb are
     * multiples of 16. */
    void (*multiply)(float *c, int64_t ldc, mics_paired a, const uint32_t *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, bool add, triangle part);

    /* to (D / 2, TILE) = bf16 rows (rows, D), D even, transposed; 0 behind the last row, up to a
     * multiple of 16. */
    void (*across)(uint32_t *to, const void *from, int64_t stride, int64_t rows, int64_t D);

    /* to (rows / 2, W) = bf16 rows (rows, D); 0 behind the last column. W is a multiple of 16. */
    void (*down)(uint32_t *to, int64_t W, const void *from, int64_t stride, int64_t rows,
                 int64_t D);

    /* Floats at_TT (rows, TILE), in their place, to rounded pairs (rows / 2, TILE). */
    void (*round_down)(float *at_TT, int64_t rows);

    /* bf16 to (rows, TILE) = floats (rows, TILE), rounded. */
    void (*round_rows)(void *to, const float *from_TT, int64_t rows);
} mics_attention_pairs;

/* The functions for heads of D numbers.
 *
 * Returns: NULL where this build or this CPU has none, or where D is odd.
 * Threads: any. */
const mics_attention_pairs *mics_attention_pairs_for(int64_t D);
