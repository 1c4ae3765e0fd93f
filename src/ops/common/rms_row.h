// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One row scaled by its root mean square, on the CPU: what RMSNorm does to a token, and head_norm to
// each head of one. Shapes: rows and weights (C).
#pragma once

#include "ops/common/elem.h"
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = x scale weight. Returns: scale = 1 / sqrt(mean of x^2 + eps). */
static inline float mics_rms_forward_row(mics_elem *y_C, const mics_elem *x_C,
                                         const mics_elem *weight_C, float eps, int64_t C)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; ++c)
        squares += mics_load(x_C[c]) * mics_load(x_C[c]);
    const float scale = 1.0F / sqrtf(squares / (float)C + eps);
#pragma omp simd
    for (int64_t c = 0; c < C; ++c)
        y_C[c] = mics_store(mics_load(x_C[c]) * scale * mics_load(weight_C[c]));
    return scale;
}

/* With normal = x scale and g = dy weight: dx = scale (g - normal * mean of (g normal)), or that is
 * added; dweight += dy normal. dx may be dy. Either may be NULL.
 *
 * Needs:   the scale that forward returned.
 */
static inline void mics_rms_backward_row(mics_elem *dx_C, float *dweight_C, const mics_elem *dy_C,
                                         const mics_elem *x_C, float scale,
                                         const mics_elem *weight_C, int64_t C, bool add_dx)
{
    float sum = 0;
    if (dweight_C != NULL) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dweight_C[c] += mics_load(dy_C[c]) * (mics_load(x_C[c]) * scale);
    }
    if (dx_C == NULL)
        return;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; ++c)
        sum += mics_load(dy_C[c]) * mics_load(weight_C[c]) * (mics_load(x_C[c]) * scale);
    const float mean = sum / (float)C;
    if (add_dx) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) {
            const float g = mics_load(dy_C[c]) * mics_load(weight_C[c]);
            dx_C[c] =
                mics_store(mics_load(dx_C[c]) + (g - mics_load(x_C[c]) * scale * mean) * scale);
        }
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c) {
            const float g = mics_load(dy_C[c]) * mics_load(weight_C[c]);
            dx_C[c] = mics_store((g - mics_load(x_C[c]) * scale * mean) * scale);
        }
    }
}
