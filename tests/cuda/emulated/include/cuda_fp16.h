// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// fp16 (IEEE 754 binary16) for emulated kernels: conversions and pairs; arithmetic is done in fp32.
#pragma once

#include "cuda_runtime.h"

#ifdef __cplusplus

struct __half_raw {
    unsigned short x;
};

namespace mics_emulated
{
// Nearest, ties to even; what rounds beyond 65504 is infinity; NaN stays NaN.
inline unsigned short fp16_of(float value)
{
    unsigned bits = __float_as_uint(value), sign = (bits >> 16) & 0x8000u;
    unsigned magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return 0x7fff;
    if (magnitude >= 0x477ff000u) // 65520: halfway to 65536, which is the tie to even
        return (unsigned short)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { // below 2^-14: steps of 2^-24
        float steps = std::nearbyint(__uint_as_float(magnitude) * 16777216.0f);
        return (unsigned short)(sign | (unsigned)steps);
    }
    unsigned rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (unsigned short)(sign | ((rounded - 0x38000000u) >> 13));
}
inline float fp16_value(unsigned short bits)
{
    unsigned sign = (unsigned)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u;
    unsigned fraction = bits & 0x3ffu;
    if (exponent == 0) {
        float magnitude = (float)fraction * 5.9604644775390625e-8f; // 2^-24
        return sign != 0 ? -magnitude : magnitude;
    }
    if (exponent == 31)
        return __uint_as_float(sign | 0x7f800000u | (fraction << 13));
    return __uint_as_float(sign | ((exponent + 112u) << 23) | (fraction << 13));
}
} // namespace mics_emulated

struct __half {
    unsigned short bits_;
    __half() = default;
    __half(float value) : bits_(mics_emulated::fp16_of(value))
    {
    }
    __half(__half_raw raw) : bits_(raw.x)
    {
    }
    operator float() const
    {
        return mics_emulated::fp16_value(bits_);
    }
};
typedef __half half;

struct alignas(4) __half2 {
    __half x, y;
    __half2() = default;
    __half2(__half x_, __half y_) : x(x_), y(y_)
    {
    }
};
typedef __half2 half2;

inline __half __float2half(float value)
{
    return __half(value);
}
inline __half __float2half_rn(float value)
{
    return __half(value);
}
inline float __half2float(__half value)
{
    return value;
}
inline unsigned short __half_as_ushort(__half value)
{
    return value.bits_;
}
inline __half __ushort_as_half(unsigned short bits)
{
    return __half(__half_raw{bits});
}
inline __half2 __floats2half2_rn(float x, float y)
{
    return {__half(x), __half(y)};
}
inline __half2 __float22half2_rn(float2 v)
{
    return __floats2half2_rn(v.x, v.y);
}
inline float2 __half22float2(__half2 v)
{
    return {v.x, v.y};
}
inline float __low2float(__half2 v)
{
    return v.x;
}
inline float __high2float(__half2 v)
{
    return v.y;
}
inline __half __low2half(__half2 v)
{
    return v.x;
}
inline __half __high2half(__half2 v)
{
    return v.y;
}
inline __half2 __halves2half2(__half x, __half y)
{
    return {x, y};
}
inline __half2 __half2half2(__half x)
{
    return {x, x};
}

#endif
