// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One row scaled by its root mean square, on the CPU: what RMSNorm does to a token, and head_norm to
// each head of one. Shapes: rows and weights (C).
#ifndef MICS_OP_RMS_ROW_H
#define MICS_OP_RMS_ROW_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* y = x scale weight. Returns: scale = 1 / sqrt(mean of x^2 + eps). */
static inline float mics_rms_forward_row(float *y_C, const float *x_C, const float *weight_C,
                                         float eps, int64_t C)
{
    float squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < C; ++c)
        squares += x_C[c] * x_C[c];
    const float scale = 1.0F / sqrtf(squares / (float)C + eps);
#pragma omp simd
    for (int64_t c = 0; c < C; ++c)
        y_C[c] = x_C[c] * scale * weight_C[c];
    return scale;
}

/* With normal = x scale and g = dy weight: dx = scale (g - normal * mean of (g normal)), or that is
 * added; dweight += dy normal. dx may be dy.
 *
 * Needs:   the scale that forward returned.
 */
static inline void mics_rms_backward_row(float *dx_C, float *dweight_C, const float *dy_C,
                                         const float *x_C, float scale, const float *weight_C,
                                         int64_t C, bool add_dx)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t c = 0; c < C; ++c) {
        const float normal = x_C[c] * scale;
        sum += dy_C[c] * weight_C[c] * normal;
        dweight_C[c] += dy_C[c] * normal;
    }
    const float mean = sum / (float)C;
    if (add_dx) {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dx_C[c] += (dy_C[c] * weight_C[c] - x_C[c] * scale * mean) * scale;
    } else {
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            dx_C[c] = (dy_C[c] * weight_C[c] - x_C[c] * scale * mean) * scale;
    }
}

#endif
