// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of weights times a token, in generation.
#pragma once

#include "base/shares.h"
#include "mics/core/dtype.h"
#include "ops/common/kernels_isa.h"
#include "ops/experts/def.h"

enum { MICS_EXPERTS_SHARE = 32 }; // outputs that a thread takes at a time

/* The row of a weight of fp32 or bf16 that begins at element `at`, times x. The same bits for the
 * same numbers. */
static inline float mics_dot_row(const void *weight, mics_dtype dtype, int64_t at, const float *x_I,
                                 int64_t I)
{
    enum { PART = 256 };
    float part[PART], sum = 0;
    for (int64_t first = 0; first < I; first += PART) {
        const int64_t count = mics_smaller(PART, I - first);
        const float *w = (const float *)weight + at + first, *x = x_I + first;
        if (dtype == MICS_DTYPE_BF16) {
            MICS_ISA_OP(unpack_bf16)(part, (const uint16_t *)weight + at + first, count);
            w = part;
        }
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < count; ++i)
            sum += w[i] * x[i];
    }
    return sum;
}
