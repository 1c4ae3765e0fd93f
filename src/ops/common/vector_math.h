// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Functions that the compiler turns into vector code when they stand in a loop under
// `#pragma omp simd`: plain C without branches or calls.
#ifndef MICS_OP_VECTOR_MATH_H
#define MICS_OP_VECTOR_MATH_H

#include <stdint.h>
#include <string.h>

/* e^x, within 2 units in the last place for -87.33 <= x <= 88.37.
 *
 * Below, 0 (the result would be denormal); above, +inf. NaN stays NaN.
 * Source: expf.c of Cephes 2.2 (Moshier, 1992): x = n log 2 + r with log 2 in two parts, and a
 * polynomial of degree 7 for e^r, |r| <= log 2 / 2.
 */
static inline float mics_exp(float x)
{
    const float lowest = -87.33F, highest = 89.0F;
    const float round = 12582912.0F; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    float in = x < lowest ? lowest : x;
    in = in > highest ? highest : in;
    float shifted = in * 1.44269504F + round;
    float n = shifted - round;
    float r = in - n * 0.693359375F;
    r = r + n * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000U; // 2^n; n = 128 gives inf
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return x < lowest ? 0.0F : p * scale;
}

#endif
