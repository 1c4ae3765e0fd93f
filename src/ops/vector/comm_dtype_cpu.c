// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Communication dtypes: fp32 to bf16 or to blocks of int8 or int4, and back. They run on the thread that
// communicates, so there are no threads inside.
//
// Note on bits. Every instruction set gives the same ones, and so would a GPU, for three reasons:
// sums, products and quotients of single elements are rounded as IEEE 754 says; the largest
// magnitude is a maximum of integers, whatever the order; and scales have 17 significant bits, so
// that q * scale with |q| <= 127 is exact, and a compiler that fuses it with the addition behind it
// changes nothing.
#include "ops/common/kernels_isa.h"
#include <float.h>
#include <math.h>
#include <string.h>

// CPUs fetch ahead by themselves, but stop at the end of a page. Told of the floats, which
// are the larger stream, so far ahead, one core moves a quarter more (measured on a Xeon of 2023).
enum { AHEAD_BYTES = 2048, LINE_BYTES = 64 };

// The address by its number, because it may lie behind the array; then nothing happens.
static inline void fetch(const float *from, size_t bytes_on)
{
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    __builtin_prefetch((const void *)((uintptr_t)from + bytes_on));
}

static inline void fetch_block_ahead(const float *block)
{
    for (size_t line = 0; line < MICS_COMM_INT8_BLOCK * sizeof(float); line += LINE_BYTES)
        fetch(block, AHEAD_BYTES + line);
}

// ---- bf16 ----

// As many elements as a register has lanes, as bits. Explicit vectors, because buffers may overlap:
// each vector is loaded whole before its result is stored, in ascending order.
typedef uint32_t words __attribute__((vector_size(MICS_LANES * 4)));
typedef uint32_t words_anywhere __attribute__((vector_size(MICS_LANES * 4), aligned(4), may_alias));
typedef int32_t signed_words __attribute__((vector_size(MICS_LANES * 4)));
typedef uint16_t halves __attribute__((vector_size(MICS_LANES * 2)));
typedef uint16_t halves_anywhere
    __attribute__((vector_size(MICS_LANES * 2), aligned(2), may_alias));

// Nearest, ties to even: half a unit less one is added, and one more where the upper half is odd. A
// carry into the exponent is what it should be, up to infinity. A NaN is cut and made quiet, so
// that one whose payload stood in the lower half does not become infinity.
static inline halves round_bf16(words bits)
{
    const signed_words magnitude = (signed_words)(bits & 0x7fffffffU);
    const words is_nan = (words)(magnitude > 0x7f800000);
    const words added = 0x7fffU + ((bits >> 16) & 1U);
    const words rounded = (bits + (added & ~is_nan)) | (is_nan & 0x400000U);
    return __builtin_convertvector(rounded >> 16, halves);
}

static inline words widen_bf16(halves bits)
{
    return __builtin_convertvector(bits, words) << 16;
}

// In place a vector's store ends at or before the place where the next load begins, because packed
// elements are half as wide.
void MICS_ISA_OP(pack_bf16)(uint16_t *packed, const float *values, int64_t elems)
{
    int64_t i = 0;
    for (; i + MICS_LANES <= elems; i += MICS_LANES) {
        fetch(values + i, AHEAD_BYTES);
        *(halves_anywhere *)(packed + i) = round_bf16(*(const words_anywhere *)(values + i));
    }
    words last = {0};
    memcpy(&last, values + i, (size_t)(elems - i) * sizeof *values);
    const halves out = round_bf16(last);
    memcpy(packed + i, &out, (size_t)(elems - i) * sizeof *packed);
}

// In place, k elements are stored up to byte 4 k, and the next load begins at byte 4 (elems / 2) +
// 2 k or behind, which is no less while k < elems.
void MICS_ISA_OP(unpack_bf16)(float *values, const uint16_t *packed, int64_t elems)
{
    int64_t i = 0;
    for (; i + MICS_LANES <= elems; i += MICS_LANES) {
        fetch(values + i, AHEAD_BYTES);
        *(words_anywhere *)(values + i) = widen_bf16(*(const halves_anywhere *)(packed + i));
    }
    halves last = {0};
    memcpy(&last, packed + i, (size_t)(elems - i) * sizeof *packed);
    const words out = widen_bf16(last);
    memcpy(values + i, &out, (size_t)(elems - i) * sizeof *values);
}

static void add_bf16_block(float *sum, const uint16_t *packed, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        const uint32_t bits = (uint32_t)packed[i] << 16;
        float value;
        memcpy(&value, &bits, sizeof value);
        sum[i] += value;
    }
}

void MICS_ISA_OP(add_bf16)(float *sum, const uint16_t *packed, int64_t elems)
{
    for (int64_t first = 0; first < elems; first += MICS_COMM_INT8_BLOCK) {
        const int64_t rest = elems - first;
        fetch_block_ahead(sum + first);
        add_bf16_block(sum + first, packed + first,
                       rest < MICS_COMM_INT8_BLOCK ? rest : MICS_COMM_INT8_BLOCK);
    }
}

// ---- int8 ----

static const int32_t INFINITE = 0x7f800000; // bits of infinity; those of NaNs are more
static const float ROUND =
    12582912.0F; // 1.5 * 2^23: adding it rounds to an integer in the low bits

static inline int32_t magnitude_bits(float value)
{
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits & INT32_MAX;
}

// Bits of the largest magnitude; as integers they are in the order of the numbers.
static int32_t largest_bits(const float *values, int64_t elems)
{
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < elems; ++i) {
        const int32_t bits = magnitude_bits(values[i]);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// The same of residual += values.
static int32_t add_largest_bits(float *residual, const float *values, int64_t elems)
{
    int32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < elems; ++i) {
        const float value = values[i] + residual[i];
        const int32_t bits = magnitude_bits(value);
        residual[i] = value;
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

// Of a block whose largest magnitude is not 0 and finite, and becomes `most`. Denormal scales, which
// have fewer bits, are 0.
static float scale_of(int32_t largest, float most)
{
    float scale;
    memcpy(&scale, &largest, sizeof scale);
    scale /= most;
    if (scale < FLT_MIN)
        return 0.0F;
    uint32_t bits;
    memcpy(&bits, &scale, sizeof bits);
    bits &=
        ~0x7fU; // see the note on bits; the quotient grows by 2^-16 at most: it rounds to `most`
    memcpy(&scale, &bits, sizeof scale);
    return scale;
}

static inline float shifted_quotient(float value, float scale)
{
    return value / scale + ROUND;
}

static inline int8_t low_byte(float shifted)
{
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    return (int8_t)bits;
}

static void quantize(int8_t *q, const float *values, float scale, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        q[i] = low_byte(shifted_quotient(values[i], scale));
}

// residual holds the values, and afterwards what rounding lost of them.
static void quantize_keep(int8_t *q, float *residual, float scale, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        const float value = residual[i], shifted = shifted_quotient(value, scale);
        q[i] = low_byte(shifted);
        residual[i] = value - (shifted - ROUND) * scale;
    }
}

// Returns the scale.
static float pack_block(int8_t *q, const float *values, float *residual, float most, int64_t elems)
{
    const int32_t largest =
        residual ? add_largest_bits(residual, values, elems) : largest_bits(values, elems);
    const float scale = largest >= INFINITE ? NAN : scale_of(largest, most);
    if (scale > 0.0F) {
        if (residual)
            quantize_keep(q, residual, scale, elems);
        else
            quantize(q, values, scale, elems);
        return scale;
    }
    memset(q, 0, (size_t)elems);
    if (residual && largest >= INFINITE) // else it could never become finite again
        memset(residual, 0, (size_t)elems * sizeof *residual);
    return scale;
}

// Where things stand in packed numbers. Scales are read and written by memcpy: they need no
// alignment.
typedef struct block_view {
    int64_t first, elems;  // of the numbers
    size_t scale_at, q_at; // bytes
} block_view;

static inline block_view block_at(int64_t block, int64_t elems)
{
    const int64_t blocks = (elems + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK;
    const int64_t first = block * MICS_COMM_INT8_BLOCK, rest = elems - first;
    return (block_view){.first = first,
                        .elems = rest < MICS_COMM_INT8_BLOCK ? rest : MICS_COMM_INT8_BLOCK,
                        .scale_at = (size_t)block * sizeof(float),
                        .q_at = (size_t)blocks * sizeof(float) + (size_t)first};
}

void MICS_ISA_OP(pack_int8)(void *packed, const float *values, float *residual, int64_t elems)
{
    char *to = packed;
    size_t end = 0;
    for (int64_t block = 0; block * MICS_COMM_INT8_BLOCK < elems; ++block) {
        const block_view at = block_at(block, elems);
        fetch_block_ahead(values + at.first);
        if (residual)
            fetch_block_ahead(residual + at.first);
        const float scale = pack_block((int8_t *)to + at.q_at, values + at.first,
                                       residual ? residual + at.first : NULL, 127, at.elems);
        memcpy(to + at.scale_at, &scale, sizeof scale);
        end = at.q_at + (size_t)at.elems;
    }
    memset(to + end, 0, mics_comm_dtype_bytes(MICS_COMM_INT8, elems) - end);
}

static void unpack_block(float *values, const int8_t *q, float scale, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        values[i] = (float)q[i] * scale;
}

static void add_block(float *sum, const int8_t *q, float scale, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        sum[i] += (float)q[i] * scale;
}

static inline float scale_at(const char *from, block_view at)
{
    float scale;
    memcpy(&scale, from + at.scale_at, sizeof scale);
    return scale;
}

void MICS_ISA_OP(unpack_int8)(float *values, const void *packed, int64_t elems)
{
    const char *from = packed;
    for (int64_t block = 0; block * MICS_COMM_INT8_BLOCK < elems; ++block) {
        const block_view at = block_at(block, elems);
        fetch_block_ahead(values + at.first);
        unpack_block(values + at.first, (const int8_t *)from + at.q_at, scale_at(from, at),
                     at.elems);
    }
}

void MICS_ISA_OP(add_int8)(float *sum, const void *packed, int64_t elems)
{
    const char *from = packed;
    for (int64_t block = 0; block * MICS_COMM_INT8_BLOCK < elems; ++block) {
        const block_view at = block_at(block, elems);
        fetch_block_ahead(sum + at.first);
        add_block(sum + at.first, (const int8_t *)from + at.q_at, scale_at(from, at), at.elems);
    }
}

// ---- int4 ----

// A block's first element is even, so that none begins inside a byte.
static inline size_t nibbles_at(block_view at, int64_t elems)
{
    const int64_t blocks = (elems + MICS_COMM_INT8_BLOCK - 1) / MICS_COMM_INT8_BLOCK;
    return (size_t)blocks * sizeof(float) + (size_t)at.first / 2;
}

void MICS_ISA_OP(pack_int4)(void *packed, const float *values, float *residual, int64_t elems)
{
    char *to = packed;
    size_t end = 0;
    for (int64_t block = 0; block * MICS_COMM_INT8_BLOCK < elems; ++block) {
        const block_view at = block_at(block, elems);
        const int64_t pairs = at.elems / 2;
        uint8_t *out = (uint8_t *)to + nibbles_at(at, elems);
        int8_t q[MICS_COMM_INT8_BLOCK];
        const float scale =
            pack_block(q, values + at.first, residual ? residual + at.first : NULL, 7, at.elems);
        memcpy(to + at.scale_at, &scale, sizeof scale);
        for (int64_t i = 0; i < pairs; ++i)
            out[i] = (uint8_t)((q[2 * i] + 8) | (q[2 * i + 1] + 8) << 4);
        if (at.elems % 2 != 0)
            out[pairs] = (uint8_t)(q[2 * pairs] + 8);
        end = nibbles_at(at, elems) + (size_t)(at.elems + 1) / 2;
    }
    memset(to + end, 0, mics_comm_dtype_bytes(MICS_COMM_INT4, elems) - end);
}

// Into an even number of elements.
static void part_nibbles(int8_t q[MICS_COMM_INT8_BLOCK], const uint8_t *nibbles, int64_t elems)
{
    for (int64_t i = 0; 2 * i < elems; ++i) {
        q[2 * i] = (int8_t)((nibbles[i] & 15) - 8);
        q[2 * i + 1] = (int8_t)((nibbles[i] >> 4) - 8);
    }
}

void MICS_ISA_OP(unpack_int4)(float *values, const void *packed, int64_t elems)
{
    const char *from = packed;
    for (int64_t block = 0; block * MICS_COMM_INT8_BLOCK < elems; ++block) {
        const block_view at = block_at(block, elems);
        int8_t q[MICS_COMM_INT8_BLOCK];
        part_nibbles(q, (const uint8_t *)from + nibbles_at(at, elems), at.elems);
        unpack_block(values + at.first, q, scale_at(from, at), at.elems);
    }
}

void MICS_ISA_OP(add_int4)(float *sum, const void *packed, int64_t elems)
{
    const char *from = packed;
    for (int64_t block = 0; block * MICS_COMM_INT8_BLOCK < elems; ++block) {
        const block_view at = block_at(block, elems);
        int8_t q[MICS_COMM_INT8_BLOCK];
        part_nibbles(q, (const uint8_t *)from + nibbles_at(at, elems), at.elems);
        add_block(sum + at.first, q, scale_at(from, at), at.elems);
    }
}
