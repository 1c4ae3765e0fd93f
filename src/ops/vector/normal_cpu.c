// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Normal random numbers in fp32: the initial weights.
//
// Note on bits. mics_rng_normal says what the numbers are, and calls the C library for logarithm
// and cosine. Here both are series, in loops that the compiler vectorizes, and the result v is off
// by less than DOUBT * |v|. Where the ends of that range round to the same fp32 number, so does
// what mics_rng_normal gives. Elsewhere, some 3 in 10000, mics_rng_normal itself is called.
#include "base/rng.h"
#include "ops/common/kernels_isa.h"
#include <math.h>
#include <string.h>

enum { DRAWN_AT_ONCE = 256 };

static const double DOUBT = 0x1p-36;
// A smaller cosine is left to the library: it inherits the rounding of its argument, 7e-16, which
// is then no longer small beside it.
static const double SMALL_COSINE = 0x1p-10;

static inline double as_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t as_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

// The upper 53 of 64 bits as a fraction, in parts of 32 and 21 that stand in a mantissa: vectors of
// AVX2 have no conversion from 64-bit integers.
static inline double fraction(uint64_t low, uint64_t high)
{
    const uint64_t bits = low >> 11 | (high << 21 & 0xffffffffU);
    const double lower = as_double(bits | as_bits(0x1p52)) - 0x1p52;
    const double upper = as_double(high >> 11 | as_bits(0x1p52)) - 0x1p52;
    return upper * 0x1p-21 + lower * 0x1p-53;
}

// log x of a normal x > 0, within 1e-14 of itself: x = 2^n m, 1/sqrt 2 <= m < sqrt 2, and log m =
// 2 artanh s with s = (m - 1) / (m + 1).
static inline double logarithm(double x)
{
    const uint64_t root_half = 0x3fe6a09e667f3bcdU;
    const uint64_t exponent = (as_bits(x) - root_half) & 0xfff0000000000000U;
    const double m = as_double(as_bits(x) - exponent);
    // n + 2048, which is positive, in the mantissa of 2^52
    const uint64_t shifted = ((exponent >> 52) + 2048) & 0xfff;
    const double n = as_double(shifted | as_bits(0x1p52)) - (0x1p52 + 2048);
    const double s = (m - 1.0) / (m + 1.0), s2 = s * s;
    double p = 1.0 / 19;
    p = p * s2 + 1.0 / 17;
    p = p * s2 + 1.0 / 15;
    p = p * s2 + 1.0 / 13;
    p = p * s2 + 1.0 / 11;
    p = p * s2 + 1.0 / 9;
    p = p * s2 + 1.0 / 7;
    p = p * s2 + 1.0 / 5;
    p = p * s2 + 1.0 / 3;
    p = p * s2 + 1.0;
    return n * 0.69314718055994530942 + 2.0 * s * p;
}

// cos(2 pi t) for 0 <= t < 1, within 1e-13: the next quarter turn, and Taylor's series of what is
// left, at most pi / 4.
static inline double cosine_of_turn(double t)
{
    const double round = 0x1.8p52; // adding it rounds to an integer in the low bits
    const double shifted = 4.0 * t + round;
    const double x = (t - (shifted - round) * 0.25) * 6.283185307179586476925286766559;
    const double x2 = x * x;
    double s = 1.0 / 6227020800;
    s = s * x2 - 1.0 / 39916800;
    s = s * x2 + 1.0 / 362880;
    s = s * x2 - 1.0 / 5040;
    s = s * x2 + 1.0 / 120;
    s = s * x2 - 1.0 / 6;
    double c = -1.0 / 87178291200;
    c = c * x2 + 1.0 / 479001600;
    c = c * x2 - 1.0 / 3628800;
    c = c * x2 + 1.0 / 40320;
    c = c * x2 - 1.0 / 720;
    c = c * x2 + 1.0 / 24;
    c = c * x2 - 0.5;
    const uint64_t quarter = as_bits(shifted) & 3;
    const double value = quarter & 1 ? s * x2 * x + x : c * x2 + 1.0;
    return (quarter + 1) & 2 ? -value : value;
}

// Philox4x32-10 (mics_rng_philox), a word in 64 bits; and from it a normal number.
static inline double normal(uint64_t seed, uint64_t stream, uint64_t index, double *cosine_out)
{
    const uint64_t word = 0xffffffffU;
    uint64_t c0 = index & word, c1 = index >> 32, c2 = stream & word, c3 = stream >> 32;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int step = 0; step < 10; step++) {
        const uint64_t p0 = c0 * 0xD2511F53U, p1 = c2 * 0xCD9E8D57U;
        c0 = p1 >> 32 ^ c1 ^ k0;
        c2 = p0 >> 32 ^ c3 ^ k1;
        c1 = p1 & word;
        c3 = p0 & word;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    *cosine_out = cosine_of_turn(fraction(c2, c3));
    return sqrt(-2.0 * logarithm(1.0 - fraction(c0, c1))) * *cosine_out;
}

static void draw(float *values, int64_t elems, uint64_t seed, uint64_t stream, uint64_t first,
                 double deviation)
{
    uint32_t doubtful[DRAWN_AT_ONCE], any = 0;
#pragma omp simd reduction(| : any)
    for (int64_t i = 0; i < elems; i++) {
        double cosine;
        const double v = deviation * normal(seed, stream, first + (uint64_t)i, &cosine);
        const float least = (float)(v * (1.0 - DOUBT)), most = (float)(v * (1.0 + DOUBT));
        const bool sure = least == most && v != 0 && fabs(cosine) > SMALL_COSINE;
        values[i] = least;
        doubtful[i] = !sure;
        any |= !sure;
    }
    for (int64_t i = 0; any != 0 && i < elems; i++) {
        if (doubtful[i] != 0)
            values[i] = (float)(deviation * mics_rng_normal(seed, stream, first + (uint64_t)i));
    }
}

void MICS_ISA_OP(draw_normal)(float *values, int64_t elems, uint64_t seed, uint64_t stream,
                              uint64_t first, double deviation)
{
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += DRAWN_AT_ONCE) {
        const int64_t left = elems - begin;
        draw(values + begin, left < DRAWN_AT_ONCE ? left : DRAWN_AT_ONCE, seed, stream,
             first + (uint64_t)begin, deviation);
    }
}
