// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Pairs of bf16 numbers in AVX-512 registers, for vdpbf16ps, which adds the dots of 16 pairs with
// 16 others to 16 floats. For sources whose functions are for AVX512_BF16 alone.
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define INLINE static inline __attribute__((always_inline)) TARGET
#define UNROLL _Pragma("GCC unroll 16")

enum { LANES = 16 };

typedef uint32_t pair; // of bf16 numbers
typedef int32_t pair_anywhere __attribute__((aligned(2), may_alias));

INLINE __m512i load_row(const uint16_t *row, int64_t columns)
{
    const __mmask32 seen = columns >= 32 ? 0xffffffffU : ((1U << columns) - 1);
    return _mm512_maskz_loadu_epi16(seen, row);
}

// Pairs of 32 columns of two rows; beyond the last row or column, 0.
INLINE void interleave(pair *to, const uint16_t *row, int64_t next, bool has_next, int64_t columns)
{
    const __m512i a = load_row(row, columns);
    const __m512i b = has_next ? load_row(row + next, columns) : _mm512_setzero_si512();
    const __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
    const __m512i first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    const __m512i second = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
    _mm512_storeu_si512(to, _mm512_permutex2var_epi64(low, first, high));
    _mm512_storeu_si512(to + LANES, _mm512_permutex2var_epi64(low, second, high));
}

// 16 x 16 pairs, transposed in registers.
INLINE void transpose(__m512i r[LANES])
{
    __m512i t[LANES];
    UNROLL
    for (int i = 0; i < LANES; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    UNROLL
    for (int i = 0; i < LANES; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    UNROLL
    for (int i = 0; i < 4; ++i) {
        const __m512i a = r[i], b = r[i + 4], c = r[i + 8], d = r[i + 12];
        const __m512i ab_even = _mm512_shuffle_i32x4(a, b, 0x88);
        const __m512i ab_odd = _mm512_shuffle_i32x4(a, b, 0xdd);
        const __m512i cd_even = _mm512_shuffle_i32x4(c, d, 0x88);
        const __m512i cd_odd = _mm512_shuffle_i32x4(c, d, 0xdd);
        t[i] = _mm512_shuffle_i32x4(ab_even, cd_even, 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(ab_even, cd_even, 0xdd);
        t[i + 4] = _mm512_shuffle_i32x4(ab_odd, cd_odd, 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(ab_odd, cd_odd, 0xdd);
    }
    UNROLL
    for (int i = 0; i < LANES; ++i)
        r[i] = t[i];
}

// Pairs of 32 columns of 16 rows, transposed: to (pairs, stride); beyond the last row or column, 0.
INLINE void turn(pair *to, int64_t stride, const uint16_t *from, int64_t row, int64_t rows,
                 int64_t columns)
{
    __m512i r[LANES];
    UNROLL
    for (int i = 0; i < LANES; ++i)
        r[i] = i < rows ? load_row(from + i * row, columns) : _mm512_setzero_si512();
    transpose(r);
    const int64_t pairs = (columns + 1) / 2;
    UNROLL
    for (int i = 0; i < LANES; ++i)
        if (i < pairs)
            _mm512_storeu_si512(to + i * stride, r[i]);
}
