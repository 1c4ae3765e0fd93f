// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Few rows times a weight. Memory is the limit: a weight is read once, some rows of it at a time,
// which stay in the nearest cache for all rows of x.
//
// Each output's sum has an order that depends on I and O alone. Prefetching helps where the loads of
// a loop are too small to keep memory busy: bf16 (20 to 25 GB/s of GPT-2's weights with one thread on
// a Zen 5 of 2024); in fp32 it makes no difference.
#include "ops/common/gemv.h"
#include <string.h>

// One vector register of floats, and as many numbers of bf16.
typedef float lanes __attribute__((vector_size(4 * MICS_LANES), aligned(4), may_alias));
typedef uint16_t lane_halves __attribute__((vector_size(2 * MICS_LANES), aligned(2), may_alias));

// bf16 to fp32: each number behind a 0. As a shuffle it is one instruction of AVX-512, for which
// compilers find no other way; GCC has it from version 12 on.
#if defined(__clang__) || __GNUC__ >= 12
#define PAIRS_4(i) MICS_LANES, i, MICS_LANES, i + 1, MICS_LANES, i + 2, MICS_LANES, i + 3
#if MICS_LANES == 4
#define PAIRS PAIRS_4(0)
#elif MICS_LANES == 8
#define PAIRS PAIRS_4(0), PAIRS_4(4)
#else
#define PAIRS PAIRS_4(0), PAIRS_4(4), PAIRS_4(8), PAIRS_4(12)
#endif
#define WIDEN(halves) ((lanes)__builtin_shufflevector(halves, (lane_halves){0}, PAIRS))
#else
typedef uint32_t lane_words __attribute__((vector_size(4 * MICS_LANES)));
#define WIDEN(halves) ((lanes)(__builtin_convertvector(halves, lane_words) << 16))
#endif

#define INLINE static inline __attribute__((always_inline))

enum {
    ROWS_IO = 8, // of an (I, O) weight at a time: so many inputs
    ROWS_OI = 4, // of an (O, I) weight at a time: so many outputs
    // Outputs of a share: a sixteenth of a small weight, for threads to end together; more where
    // rows are short takes longer reads from memory.
    SHARES = 16,
    MIN_COLUMNS = 128,
    MAX_COLUMNS = 256,
    MAX_ROWS = 64,
    FETCH_BYTES = 8192, // ahead, which memory takes some 300 ns for
};

// The first `count` of the floats at `from`, then 0. A whole vector is one load: memcpy would bring it
// in halves by way of the stack where the CPU has AVX2 alone, which takes four times as long.
INLINE lanes read_part(const float *from, int64_t count)
{
    if (count == MICS_LANES)
        return *(const lanes *)from;
    lanes part = {0};
    memcpy(&part, from, (size_t)count * sizeof(float));
    return part;
}

// `count` of a weight's numbers from `at` on, then 0. A `count` of all lanes is known where this is
// compiled.
INLINE lanes load(const void *weight, int64_t at, int64_t count, bool half)
{
    if (!half)
        return read_part((const float *)weight + at, count);
    if (count == MICS_LANES)
        return WIDEN(*(const lane_halves *)((const uint16_t *)weight + at));
    lane_halves bits = {0};
    memcpy(&bits, (const uint16_t *)weight + at, (size_t)count * sizeof(uint16_t));
    return WIDEN(bits);
}

INLINE void fetch(const void *weight, int64_t at, bool half)
{
    if (half)
        __builtin_prefetch((const uint16_t *)weight + at);
}

static int64_t share_of(int64_t O, int64_t multiple, int64_t least, int64_t most)
{
    const int64_t share = ((O + SHARES - 1) / SHARES + multiple - 1) / multiple * multiple;
    return share < least ? least : share > most ? most : share;
}

// ---- (I, O): rows of the weight are added up ----

// Some columns, at most a vector, of y[0 .. rows) += x[0 .. rows) times rows of the weight from `at`
// on.
INLINE void add_columns(float *y, const float *x, const mics_gemv *g, int64_t at, int64_t columns,
                        int rows, int64_t ahead, bool half)
{
    lanes sum = read_part(y, columns);
    for (int row = 0; row < rows; ++row) {
        fetch(g->weight, at + row * g->O + ahead, half);
        sum += x[row] * load(g->weight, at + row * g->O, columns, half);
    }
    if (columns == MICS_LANES)
        *(lanes *)y = sum;
    else
        memcpy(y, &sum, (size_t)columns * sizeof *y);
}

INLINE void add_rows(float *y, const float *x, const mics_gemv *g, int64_t at, int64_t columns,
                     int rows, int64_t ahead, bool half)
{
    int64_t c = 0;
    for (; c + MICS_LANES <= columns; c += MICS_LANES)
        add_columns(y + c, x, g, at + c, MICS_LANES, rows, ahead, half);
    if (c < columns)
        add_columns(y + c, x, g, at + c, columns - c, rows, ahead, half);
}

INLINE void columns_of(const mics_gemv *g, int64_t first, int64_t columns, bool half)
{
    for (int64_t r = 0; r < g->R; ++r) {
        float *y = g->y + r * g->O + first;
        if (g->bias)
            memcpy(y, g->bias + first, (size_t)columns * sizeof *y);
        else
            memset(y, 0, (size_t)columns * sizeof *y);
    }
    const int64_t ahead =
        (FETCH_BYTES / (columns * (half ? 2 : 4)) + ROWS_IO - 1) / ROWS_IO * ROWS_IO * g->O;
    int64_t i = 0;
    for (; i + ROWS_IO <= g->I; i += ROWS_IO)
        for (int64_t r = 0; r < g->R; ++r)
            add_rows(g->y + r * g->O + first, g->x + r * g->x_stride + i, g, i * g->O + first,
                     columns, ROWS_IO, ahead, half);
    for (; i < g->I; ++i)
        for (int64_t r = 0; r < g->R; ++r)
            add_rows(g->y + r * g->O + first, g->x + r * g->x_stride + i, g, i * g->O + first,
                     columns, 1, ahead, half);
}

// ---- (O, I): each row of the weight gives an output ----

static float sum_lanes(lanes x)
{
    float sums[MICS_LANES];
    memcpy(sums, &x, sizeof sums);
    for (int width = MICS_LANES / 2; width > 0; width /= 2)
        for (int lane = 0; lane < width; ++lane)
            sums[lane] += sums[lane + width];
    return sums[0];
}

// `count` numbers, at most a vector, of rows of the weight from `at` on, times x.
INLINE void add_dots(lanes *sums, const float *x, const mics_gemv *g, int64_t at, int64_t count,
                     int rows, bool half)
{
    const lanes in = read_part(x, count);
    for (int row = 0; row < rows; ++row)
        sums[row] += in * load(g->weight, at + row * g->I, count, half);
}

// y[0 .. rows) = rows of the weight that begin at `at`, each times x.
INLINE void dot_rows(float *y, const float *x, const mics_gemv *g, int64_t at, int rows, bool half)
{
    lanes even[ROWS_OI] = {0}, odd[ROWS_OI] = {0};
    const int64_t I = g->I;
    int64_t i = 0;
    for (; i + 2 * MICS_LANES <= I; i += 2 * MICS_LANES) {
        for (int row = 0; row < rows; ++row)
            fetch(g->weight, at + (row + ROWS_OI) * I + i, half);
        add_dots(even, x + i, g, at + i, MICS_LANES, rows, half);
        add_dots(odd, x + i + MICS_LANES, g, at + i + MICS_LANES, MICS_LANES, rows, half);
    }
    for (; i < I; i += MICS_LANES)
        add_dots(even, x + i, g, at + i, I - i < MICS_LANES ? I - i : MICS_LANES, rows, half);
    for (int row = 0; row < rows; ++row)
        y[row] = sum_lanes(even[row] + odd[row]);
}

INLINE void rows_of(const mics_gemv *g, int64_t first, int64_t rows, bool half)
{
    int64_t o = first;
    for (; o + ROWS_OI <= first + rows; o += ROWS_OI)
        for (int64_t r = 0; r < g->R; ++r)
            dot_rows(g->y + r * g->O + o, g->x + r * g->x_stride, g, o * g->I, ROWS_OI, half);
    for (; o < first + rows; ++o)
        for (int64_t r = 0; r < g->R; ++r)
            dot_rows(g->y + r * g->O + o, g->x + r * g->x_stride, g, o * g->I, 1, half);
    for (int64_t r = 0; g->bias && r < g->R; ++r)
        MICS_OP(add)
    (g->y + r * g->O + first, g->y + r * g->O + first, g->bias + first, rows);
}

void MICS_ISA_OP(gemv)(const mics_gemv *g, mics_shares *shares)
{
    const bool half = g->dtype == MICS_DTYPE_BF16;
    const int64_t share = g->out_in ? share_of(g->O, ROWS_OI, ROWS_OI, MAX_ROWS)
                                    : share_of(g->O, 64, MIN_COLUMNS, MAX_COLUMNS);
    const int64_t total = (g->O + share - 1) / share;
    for (int64_t at = -1; mics_share_next(shares, total, &at);) {
        const int64_t first = at * share;
        const int64_t count = g->O - first < share ? g->O - first : share;
        if (g->out_in && half)
            rows_of(g, first, count, true);
        else if (g->out_in)
            rows_of(g, first, count, false);
        else if (half)
            columns_of(g, first, count, true);
        else
            columns_of(g, first, count, false);
    }
}
