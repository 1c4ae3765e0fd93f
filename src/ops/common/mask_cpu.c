// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Philox4x32-10 (Salmon et al., SC11), a block a lane: base/rng.h has the plain one.
#include "ops/common/mask.h"

typedef struct block {
    uint32_t word[4];
} block;

// Plain C without branches, which becomes vector code in the loops below.
static inline block random_block(const mics_mask *mask, uint32_t number, uint32_t row)
{
    const uint32_t m0 = 0xD2511F53U, m1 = 0xCD9E8D57U;
    uint32_t k0 = mask->key[0], k1 = mask->key[1];
    block c = {{number, mask->position + row, mask->number, mask->sequence}};
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = (uint64_t)m0 * c.word[0], p1 = (uint64_t)m1 * c.word[2];
        c = (block){{(uint32_t)(p1 >> 32) ^ c.word[1] ^ k0, (uint32_t)p1,
                     (uint32_t)(p0 >> 32) ^ c.word[3] ^ k1, (uint32_t)p0}};
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return c;
}

void MICS_ISA_OP(mask_rows)(uint16_t *bits, const mics_mask *mask, int64_t row, int64_t first,
                            int32_t blocks_log2, int64_t blocks)
{
    // Two numbers at a time, in the order that they have on little-endian CPUs.
    typedef uint32_t pair __attribute__((aligned(2), may_alias));
    const mics_mask own = *mask; // which bits could be, for all that the compiler knows
    const uint32_t from = (uint32_t)first, row_0 = (uint32_t)row, count = (uint32_t)blocks;
    const uint32_t last = (1U << blocks_log2) - 1;
    pair *out = (pair *)(void *)bits;
#pragma omp simd
    for (uint32_t i = 0; i < count; ++i) {
        const block c = random_block(&own, from + (i & last), row_0 + (i >> blocks_log2));
        out[4 * i] = c.word[0];
        out[4 * i + 1] = c.word[1];
        out[4 * i + 2] = c.word[2];
        out[4 * i + 3] = c.word[3];
    }
}

void MICS_ISA_OP(mask_columns)(uint16_t *bits, int64_t stride, const mics_mask *mask, int64_t row,
                               int64_t rows, int64_t block_number)
{
    const mics_mask own = *mask;
    const uint32_t number = (uint32_t)block_number, row_0 = (uint32_t)row, count = (uint32_t)rows;
#pragma omp simd
    for (uint32_t i = 0; i < count; ++i) {
        const block c = random_block(&own, number, row_0 + i);
        bits[i] = (uint16_t)c.word[0];
        bits[stride + i] = (uint16_t)(c.word[0] >> 16);
        bits[2 * stride + i] = (uint16_t)c.word[1];
        bits[3 * stride + i] = (uint16_t)(c.word[1] >> 16);
        bits[4 * stride + i] = (uint16_t)c.word[2];
        bits[5 * stride + i] = (uint16_t)(c.word[2] >> 16);
        bits[6 * stride + i] = (uint16_t)c.word[3];
        bits[7 * stride + i] = (uint16_t)(c.word[3] >> 16);
    }
}
