// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GEMMs of small tiles, and their transposes, for attention. A block of C stays in registers while
// k runs; each step loads some vectors of a row of B and multiplies them by single elements of A.
#include "ops/attention/tile.h"

// Registers decide the block of C: 6 x 4 vectors leave 8 of AVX-512's 32 free, 6 x 2 leave 4 of 16.
enum { BLOCK_ROWS = 6, BLOCK_VECTORS = MICS_LANES == 16 ? 4 : 2 };

// Vector types are GCC's and clang's; a type that is wider or narrower than the registers still
// works.
typedef float vector __attribute__((vector_size(MICS_LANES * 4)));
typedef float vector_anywhere __attribute__((vector_size(MICS_LANES * 4), aligned(4), may_alias));

static inline vector load(const float *from)
{
    return *(const vector_anywhere *)from;
}

static inline void store(float *to, vector value)
{
    *(vector_anywhere *)to = value;
}

// The loops over a block are short and constant; unrolled, its sums live in registers.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

typedef struct tiles {
    float *c;
    const float *a, *b;
    int64_t ldc, a_row, a_column, ldb, K;
    bool add;
} tiles;

// One block of `rows` x `vectors`, both constants where it is inlined, at row m, column n.
static inline __attribute__((always_inline)) void block(const tiles *t, int64_t m, int64_t n,
                                                        const int rows, const int vectors)
{
    vector sum[BLOCK_ROWS][BLOCK_VECTORS];
    float *c = t->c + m * t->ldc + n;
    UNROLL
    for (int row = 0; row < rows; ++row) {
        UNROLL
        for (int v = 0; v < vectors; ++v)
            sum[row][v] = t->add ? load(c + row * t->ldc + v * MICS_LANES) : (vector){0};
    }
    const float *a = t->a + m * t->a_row, *b = t->b + n;
    const int64_t K = t->K, a_row = t->a_row, a_column = t->a_column, ldb = t->ldb;
    for (int64_t k = 0; k < K; ++k, a += a_column, b += ldb) {
        vector of_b[BLOCK_VECTORS];
        UNROLL
        for (int v = 0; v < vectors; ++v)
            of_b[v] = load(b + v * MICS_LANES);
        UNROLL
        for (int row = 0; row < rows; ++row) {
            UNROLL
            for (int v = 0; v < vectors; ++v)
                sum[row][v] += a[row * a_row] * of_b[v];
        }
    }
    UNROLL
    for (int row = 0; row < rows; ++row) {
        UNROLL
        for (int v = 0; v < vectors; ++v)
            store(c + row * t->ldc + v * MICS_LANES, sum[row][v]);
    }
}

// All rows of `vectors` vectors of columns from n on.
static inline __attribute__((always_inline)) void panel(const tiles *t, int64_t n, int64_t M,
                                                        const int vectors)
{
    int64_t m = 0;
    for (; m + BLOCK_ROWS <= M; m += BLOCK_ROWS)
        block(t, m, n, BLOCK_ROWS, vectors);
    for (; m + 2 <= M; m += 2)
        block(t, m, n, 2, vectors);
    if (m < M)
        block(t, m, n, 1, vectors);
}

// C (+)= A B, whole.
static void multiply(float *c, int64_t ldc, const float *a, int64_t a_row, int64_t a_column,
                     const float *b, int64_t ldb, int64_t M, int64_t N, int64_t K, bool add)
{
    const tiles t = {.c = c,
                     .a = a,
                     .b = b,
                     .ldc = ldc,
                     .a_row = a_row,
                     .a_column = a_column,
                     .ldb = ldb,
                     .K = K,
                     .add = add};
    int64_t n = 0;
    for (; n + BLOCK_VECTORS * MICS_LANES <= N; n += BLOCK_VECTORS * MICS_LANES)
        panel(&t, n, M, BLOCK_VECTORS);
    for (; n + 2 * MICS_LANES <= N; n += 2 * MICS_LANES)
        panel(&t, n, M, 2);
    for (; n < N; n += MICS_LANES)
        panel(&t, n, M, 1);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void MICS_ISA_OP(tile_multiply)(float *c, int64_t ldc, tile a, const float *b, int64_t ldb,
                                int64_t M, int64_t N, int64_t K, bool add, triangle part)
{
    if (part == WHOLE) {
        multiply(c, ldc, a.data, a.row, a.column, b, ldb, M, N, K, add);
        return;
    }
    for (int64_t m = 0; m < M; m += STRIP) {
        const int64_t rows = smaller(STRIP, M - m);
        const int64_t columns_end = part == RESULT_LOWER ? smaller(N, m + STRIP) : N;
        const int64_t columns_begin = part == RESULT_UPPER ? m : 0;
        const int64_t k_end = part == FACTOR_LOWER ? smaller(K, m + STRIP) : K;
        const int64_t k_begin = part == FACTOR_UPPER ? m : 0;
        multiply(c + m * ldc + columns_begin, ldc, a.data + m * a.row + k_begin * a.column, a.row,
                 a.column, b + k_begin * ldb + columns_begin, ldb, rows,
                 columns_end - columns_begin, k_end - k_begin, add);
    }
}

// ---- transposes ----

// Four floats: every CPU's vectors hold them, and four by four transpose in registers.
typedef float quad __attribute__((vector_size(16)));
typedef float quad_anywhere __attribute__((vector_size(16), aligned(4), may_alias));

// GCC has clang's shuffle from version 12 on.
#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t places __attribute__((vector_size(16)));
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (places){__VA_ARGS__})
#endif

static inline void transpose_quad(float *dst, const float *src, int64_t W, float scale)
{
    quad row[4], half[4];
    for (int i = 0; i < 4; ++i)
        row[i] = *(const quad_anywhere *)(src + i * W) * scale;
    half[0] = SHUFFLE(row[0], row[1], 0, 4, 1, 5);
    half[1] = SHUFFLE(row[2], row[3], 0, 4, 1, 5);
    half[2] = SHUFFLE(row[0], row[1], 2, 6, 3, 7);
    half[3] = SHUFFLE(row[2], row[3], 2, 6, 3, 7);
    row[0] = SHUFFLE(half[0], half[1], 0, 1, 4, 5);
    row[1] = SHUFFLE(half[0], half[1], 2, 3, 6, 7);
    row[2] = SHUFFLE(half[2], half[3], 0, 1, 4, 5);
    row[3] = SHUFFLE(half[2], half[3], 2, 3, 6, 7);
    for (int i = 0; i < 4; ++i)
        *(quad_anywhere *)(dst + i * MICS_ATTENTION_TILE) = row[i];
}

void MICS_ISA_OP(tile_transpose)(float *dst, const float *src, int64_t W, int64_t rows, float scale)
{
    const int64_t whole = (rows + MICS_LANES - 1) / MICS_LANES * MICS_LANES;
    for (int64_t row = 0; row < whole; row += 4)
        for (int64_t d = 0; d < W; d += 4)
            transpose_quad(dst + d * MICS_ATTENTION_TILE + row, src + row * W + d, W, scale);
}
