// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Functions that the compiler turns into vector code when they stand in a loop under
// `#pragma omp simd`: plain C without branches or calls.
#pragma once

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

/* Sine and cosine of x, within a unit in the last place for |x| < 2^20, and within 4e-7 for |x| <
 * 2^31. Not finite: NaN.
 *
 * In double precision: x = n pi / 2 + r with pi / 2 in two parts, of which the first has 33 bits,
 * and Taylor polynomials of sine and cosine for |r| <= pi / 4, whose errors are below 2e-10.
 */
static inline void mics_sincos(float x, float *sine_out, float *cosine_out)
{
    const double round = 6755399441055744.0; // 1.5 * 2^52: as in mics_exp
    const double shifted = (double)x * 0.63661977236758134 + round;
    const double n = shifted - round;
    const double r = ((double)x - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11;
    const double r2 = r * r;
    double s = -1.0 / 39916800 * r2 + 1.0 / 362880;
    s = s * r2 - 1.0 / 5040;
    s = s * r2 + 1.0 / 120;
    s = s * r2 - 1.0 / 6;
    double c = -1.0 / 3628800 * r2 + 1.0 / 40320;
    c = c * r2 - 1.0 / 720;
    c = c * r2 + 1.0 / 24;
    c = c * r2 - 0.5;
    const float sine = (float)(s * r2 * r + r), cosine = (float)(c * r2 + 1.0);
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    const uint32_t quarter = (uint32_t)bits & 3; // turns
    const float of_sine = quarter & 1 ? cosine : sine, of_cosine = quarter & 1 ? sine : cosine;
    *sine_out = quarter & 2 ? -of_sine : of_sine;
    *cosine_out = (quarter + 1) & 2 ? -of_cosine : of_cosine;
}

/* Of the normal distribution what lies above |x|: erfc(|x| / sqrt 2) / 2, within 4 units in the
 * last place besides what `e`, e^(-x^2 / 2), is off.
 *
 * Source: with z = |x| / sqrt 2 and t = 1 / (1 + 0.4 z), e^(z^2) erfc(z) / t interpolated in
 * 2 t - 1 at the Chebyshev nodes of degree 10, in 40 digits (relative error 9e-9), 2026-11-22.
 */
static inline float mics_normal_tail(float x, float e)
{
    const float z = x < 0 ? -x : x, t = 1.0F / (1.0F + 0.282842712F * z), u = 2.0F * t - 1.0F;
    float p = -1.45701521e-5F;
    p = p * u - 5.38076231e-6F;
    p = p * u + 0.000133209409F;
    p = p * u + 8.27395468e-5F;
    p = p * u - 0.000960662295F;
    p = p * u - 0.00167659317F;
    p = p * u + 0.00567176481F;
    p = p * u + 0.0342498884F;
    p = p * u + 0.0907828505F;
    p = p * u + 0.160930387F;
    p = p * u + 0.210806364F;
    return e * t * p;
}
