// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention's tiles by AVX512_BF16. A block of C stays in registers while K runs, as in tile_cpu.c.
#include "ops/common/pairs_avx512.h"
#include "ops/attention/pairs.h"
#include "ops/common/gemm_dnnl.h"

enum { BLOCK_ROWS = 6, BLOCK_VECTORS = 4 };
_Static_assert(STRIP % LANES == 0, "strips begin at whole vectors, and at whole pairs");

typedef struct tiles {
    float *c;
    const uint16_t *a;
    const pair *b;
    int64_t ldc, a_row, a_pair, ldb, pairs;
    bool add;
} tiles;

// One block of `rows` x `vectors`, both constants, at row m, column n.
INLINE void block(const tiles *t, int64_t m, int64_t n, const int rows, const int vectors)
{
    __m512 sum[BLOCK_ROWS][BLOCK_VECTORS];
    float *c = t->c + m * t->ldc + n;
    UNROLL
    for (int r = 0; r < rows; ++r) {
        UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[r][v] = t->add ? _mm512_loadu_ps(c + r * t->ldc + v * LANES) : _mm512_setzero_ps();
    }
    const uint16_t *a = t->a + m * t->a_row;
    const pair *b = t->b + n;
    const int64_t a_row = t->a_row, a_pair = t->a_pair, ldb = t->ldb;
    for (int64_t k = t->pairs; k > 0; --k, a += a_pair, b += ldb) {
        __m512bh of_b[BLOCK_VECTORS];
        UNROLL
        for (int v = 0; v < vectors; ++v)
            of_b[v] = (__m512bh)_mm512_loadu_si512(b + v * LANES);
        UNROLL
        for (int r = 0; r < rows; ++r) {
            const __m512bh of_a =
                (__m512bh)_mm512_set1_epi32(*(const pair_anywhere *)(a + r * a_row));
            UNROLL
            for (int v = 0; v < vectors; ++v)
                sum[r][v] = _mm512_dpbf16_ps(sum[r][v], of_a, of_b[v]);
        }
    }
    UNROLL
    for (int r = 0; r < rows; ++r) {
        UNROLL
        for (int v = 0; v < vectors; ++v)
            _mm512_storeu_ps(c + r * t->ldc + v * LANES, sum[r][v]);
    }
}

// All rows of `vectors` vectors of columns from n on.
INLINE void panel(const tiles *t, int64_t n, int64_t M, const int vectors)
{
    int64_t m = 0;
    for (; m + BLOCK_ROWS <= M; m += BLOCK_ROWS)
        block(t, m, n, BLOCK_ROWS, vectors);
    for (; m + 4 <= M; m += 4)
        block(t, m, n, 4, vectors);
    for (; m < M; ++m)
        block(t, m, n, 1, vectors);
}

TARGET static void multiply_tiles(const tiles *t, int64_t M, int64_t N)
{
    int64_t n = 0;
    for (; n + BLOCK_VECTORS * LANES <= N; n += BLOCK_VECTORS * LANES)
        panel(t, n, M, BLOCK_VECTORS);
    for (; n + 2 * LANES <= N; n += 2 * LANES)
        panel(t, n, M, 2);
    if (n < N)
        panel(t, n, M, 1);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static void multiply(float *c, int64_t ldc, mics_paired a, const uint32_t *b, int64_t ldb,
                     int64_t M, int64_t N, int64_t K, bool add, triangle part)
{
    const int64_t strip = part == WHOLE ? M : STRIP;
    for (int64_t m = 0; m < M; m += strip) {
        const int64_t columns_end = part == RESULT_LOWER ? smaller(N, m + strip) : N;
        const int64_t columns_begin = part == RESULT_UPPER ? m : 0;
        const int64_t k_end = part == FACTOR_LOWER ? smaller(K, m + strip) : K;
        const int64_t k_begin = part == FACTOR_UPPER ? m : 0;
        const tiles t = {.c = c + m * ldc + columns_begin,
                         .a = (const uint16_t *)a.data + m * a.row + k_begin / 2 * a.pair,
                         .b = b + k_begin / 2 * ldb + columns_begin,
                         .ldc = ldc,
                         .a_row = a.row,
                         .a_pair = a.pair,
                         .ldb = ldb,
                         .pairs = (k_end - k_begin + 1) / 2,
                         .add = add};
        multiply_tiles(&t, smaller(strip, M - m), columns_end - columns_begin);
    }
}

TARGET static void across(uint32_t *to, const void *from, int64_t stride, int64_t rows, int64_t D)
{
    const uint16_t *numbers = from;
    for (int64_t row = 0; row < rows; row += LANES)
        for (int64_t d = 0; d < D; d += 2 * LANES)
            turn(to + d / 2 * MICS_ATTENTION_TILE + row, MICS_ATTENTION_TILE,
                 numbers + row * stride + d, stride, rows - row, D - d);
}

// What the last vectors of a row hold beyond it, the next one overwrites.
TARGET static void down(uint32_t *to, int64_t W, const void *from, int64_t stride, int64_t rows,
                        int64_t D)
{
    const uint16_t *numbers = from;
    for (int64_t row = 0; row < rows; row += 2, to += W)
        for (int64_t d = 0; d < W; d += 2 * LANES)
            interleave(to + d, numbers + row * stride + d, stride, row + 1 < rows, D - d);
}

INLINE __m512i round_wide(const float *from)
{
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(from)));
}

TARGET static void round_down(float *at_TT, int64_t rows)
{
    for (int64_t row = 0; row < rows; row += 2)
        for (int64_t n = 0; n < MICS_ATTENTION_TILE; n += LANES) {
            const float *from = at_TT + row * MICS_ATTENTION_TILE + n;
            const __m512i first = round_wide(from);
            const __m512i second =
                row + 1 < rows ? round_wide(from + MICS_ATTENTION_TILE) : _mm512_setzero_si512();
            _mm512_storeu_si512(at_TT + row / 2 * MICS_ATTENTION_TILE + n,
                                _mm512_or_si512(first, _mm512_slli_epi32(second, 16)));
        }
}

TARGET static void round_rows(void *to, const float *from_TT, int64_t rows)
{
    uint16_t *rounded = to;
    for (int64_t i = 0; i < rows * MICS_ATTENTION_TILE; i += 2 * LANES)
        _mm512_storeu_si512(rounded + i,
                            (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(from_TT + i + LANES),
                                                         _mm512_loadu_ps(from_TT + i)));
}

const mics_attention_pairs *mics_attention_pairs_for(int64_t D)
{
    static const mics_attention_pairs pairs = {multiply, across, down, round_down, round_rows};
    return D % 2 == 0 && mics_gemm_has_pairs() ? &pairs : NULL;
}
