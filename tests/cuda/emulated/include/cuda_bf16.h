// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// bf16 for emulated kernels: conversions and pairs; arithmetic is done in fp32.
#pragma once

#include "cuda_runtime.h"

#ifdef __cplusplus

struct __nv_bfloat16_raw {
    unsigned short x;
};

namespace mics_emulated
{
// Nearest, ties to even; NaN stays NaN.
inline unsigned short bf16_of(float value)
{
    unsigned bits = __float_as_uint(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
inline float bf16_value(unsigned short bits)
{
    return __uint_as_float((unsigned)bits << 16);
}
} // namespace mics_emulated

struct __nv_bfloat16 {
    unsigned short bits_;
    __nv_bfloat16() = default;
    __nv_bfloat16(float value) : bits_(mics_emulated::bf16_of(value))
    {
    }
    __nv_bfloat16(__nv_bfloat16_raw raw) : bits_(raw.x)
    {
    }
    operator float() const
    {
        return mics_emulated::bf16_value(bits_);
    }
};
typedef __nv_bfloat16 nv_bfloat16;

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
    __nv_bfloat162() = default;
    __nv_bfloat162(__nv_bfloat16 x_, __nv_bfloat16 y_) : x(x_), y(y_)
    {
    }
};
typedef __nv_bfloat162 nv_bfloat162;

inline __nv_bfloat16 __float2bfloat16(float value)
{
    return __nv_bfloat16(value);
}
inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    return __nv_bfloat16(value);
}
inline float __bfloat162float(__nv_bfloat16 value)
{
    return value;
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits_;
}
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits)
{
    return __nv_bfloat16(__nv_bfloat16_raw{bits});
}
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return {__nv_bfloat16(x), __nv_bfloat16(y)};
}
inline __nv_bfloat162 __float22bfloat162_rn(float2 v)
{
    return __floats2bfloat162_rn(v.x, v.y);
}
inline float2 __bfloat1622float2(__nv_bfloat162 v)
{
    return {v.x, v.y};
}
inline float __low2float(__nv_bfloat162 v)
{
    return v.x;
}
inline float __high2float(__nv_bfloat162 v)
{
    return v.y;
}
inline __nv_bfloat16 __low2bfloat16(__nv_bfloat162 v)
{
    return v.x;
}
inline __nv_bfloat16 __high2bfloat16(__nv_bfloat162 v)
{
    return v.y;
}
inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 x, __nv_bfloat16 y)
{
    return {x, y};
}
inline __nv_bfloat162 __bfloat162bfloat162(__nv_bfloat16 x)
{
    return {x, x};
}

#endif
