// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// States of optimizers in 8 or 16 bits. Every instruction set gives the same bits: quotients of
// single elements are rounded as IEEE 754 says, and maxima are of integers.
#include "base/rng.h"
#include "ops/common/kernels_isa.h"
#include "ops/vector/state_code.h"
#include <math.h>

enum { DRAW_BLOCK = 8 };

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// ---- 8 bits ----

static float scale_of(const float *values, int64_t elems)
{
    uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < elems; ++i) {
        const uint32_t key = mics_state_key_of_bits(bits_of(values[i]));
        largest = key > largest ? key : largest;
    }
    return float_of(mics_state_scale_bits(largest));
}

// The bytes of the nearest numbers: a search of the middles, which all of a block go through
// together, as each step is then a gather for a register of them.
static void pack_block(uint8_t *held, const float *values, int64_t elems, float scale,
                       const mics_state_code *code)
{
    const float by = scale == 0.0F ? INFINITY : scale;            // then all quotients are 0
    const int32_t least = code->squares && scale != 0.0F ? 1 : 0; // of what is above 0
    float quotients[MICS_STATE_BLOCK];
    int32_t at[MICS_STATE_BLOCK];
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        quotients[i] = values[i] / by;
        at[i] = 0;
    }
    for (int32_t step = MICS_STATE_CODES / 2; step > 0; step /= 2) {
        const float *middles = code->middles + step - 1;
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            at[i] += step & -(int32_t)(quotients[i] >= middles[at[i]]);
    }
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        const int32_t floor = values[i] > 0.0F ? least : 0;
        held[i] = (uint8_t)(at[i] > floor ? at[i] : floor);
    }
}

// Scale 0 gives +0, whatever the bytes.
static void unpack_block(float *values, const uint8_t *held, int64_t elems, float scale,
                         const mics_state_code *code)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        values[i] = code->values[held[i]] * scale + 0.0F;
}

// ---- bf16 ----

// As mics_elem's rounding (elem.h), with `added` in place of half a unit. What is a bf16 stays.
static inline uint16_t bf16_of(float value, uint32_t added)
{
    const uint32_t bits = bits_of(value);
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return (uint16_t)((is_nan ? bits | 0x400000U : bits + added) >> 16);
}

static void round_block(uint16_t *held, const float *values, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        held[i] = bf16_of(values[i], 0x7fffU + (bits_of(values[i]) >> 16 & 1U));
}

static void draw_block(uint16_t *held, const float *values, int64_t elems,
                       const mics_state_draw *draw, int64_t first)
{
    for (int64_t i = 0; i < elems; i += DRAW_BLOCK) {
        const uint64_t block = (uint64_t)(draw->first + first + i) / DRAW_BLOCK;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), draw->state, 0};
        uint32_t bits[4];
        mics_rng_philox(draw->key, counter, bits);
        for (int64_t k = 0; k < DRAW_BLOCK && i + k < elems; ++k)
            held[i + k] = bf16_of(values[i + k], bits[k / 2] >> 16 * (k % 2) & 0xffffU);
    }
}

static void widen_block(float *values, const uint16_t *held, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        values[i] = float_of((uint32_t)held[i] << 16);
}

// ---- both ----

static int64_t block_elems(const mics_state_part *part, int64_t begin)
{
    const int64_t rest = part->elems - begin;
    return rest < MICS_STATE_BLOCK ? rest : MICS_STATE_BLOCK;
}

void MICS_ISA_OP(pack_state)(const mics_exec *at, const mics_state_part *part, const float *values,
                             const mics_state_draw *draw)
{
    const mics_state_code code = mics_state_code_of(part->squares);
    const int64_t elems = part->elems;
    uint16_t *halves = part->held;
    (void)at;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_STATE_BLOCK) {
        const int64_t count = block_elems(part, begin);
        if (part->dtype == MICS_STATE_8BIT) {
            const float scale = scale_of(values + begin, count);
            part->scales[begin / MICS_STATE_BLOCK] = scale;
            pack_block((uint8_t *)part->held + begin, values + begin, count, scale, &code);
        } else if (draw != NULL) {
            draw_block(halves + begin, values + begin, count, draw, begin);
        } else {
            round_block(halves + begin, values + begin, count);
        }
    }
}

void MICS_ISA_OP(unpack_state)(const mics_exec *at, float *values, const mics_state_part *part)
{
    const mics_state_code code = mics_state_code_of(part->squares);
    const int64_t elems = part->elems;
    (void)at;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_STATE_BLOCK) {
        const int64_t count = block_elems(part, begin);
        if (part->dtype == MICS_STATE_8BIT)
            unpack_block(values + begin, (const uint8_t *)part->held + begin, count,
                         part->scales[begin / MICS_STATE_BLOCK], &code);
        else
            widen_block(values + begin, (const uint16_t *)part->held + begin, count);
    }
}
