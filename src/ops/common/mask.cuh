// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Dropout masks on a GPU: the random bits that mics_dropout_draw (op.h) defines. Philox4x32-10
// (Salmon et al., SC11): base/rng.h has the plain one.
#pragma once

#include "ops/kernels.h"
#include <cuda_runtime.h>

// The masks of a call's op. The draw is read by kernels, since a graph of them is run again for
// other steps.
struct mics_masks {
    const mics_dropout_draw *draw;       // NULL: nothing is dropped
    uint32_t first, position, threshold; // position: of the call's row 0, which attention's is not
    float scale;                         // of what is kept
};

static inline mics_masks mics_masks_of(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    return {op->dropout > 0 ? call->draw : nullptr,
            op->mask + static_cast<uint32_t>(call->first_head),
            static_cast<uint32_t>(call->position), mics_dropout_threshold(op->dropout),
            mics_dropout_scale(op->dropout)};
}

// One of them, of one sequence.
struct mics_mask {
    uint32_t key0, key1, number, sequence, threshold;
};

// Of sequence `b` of the micro-batch, `head` behind the op's first.
static __device__ __forceinline__ mics_mask mask_at(const mics_masks &masks, int64_t b,
                                                    int64_t head)
{
    const mics_dropout_draw *draw = masks.draw;
    return {draw->key[0], draw->key[1], masks.first + static_cast<uint32_t>(head),
            draw->sequence + static_cast<uint32_t>(b), masks.threshold};
}

// Philox's rounds on a counter.
static __device__ __forceinline__ void make_random(uint32_t (&c)[4], uint32_t k0, uint32_t k1)
{
    const uint32_t m0 = 0xD2511F53U, m1 = 0xCD9E8D57U;
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const uint32_t high0 = __umulhi(m0, c[0]), high1 = __umulhi(m1, c[2]);
        const uint32_t low0 = m0 * c[0], low1 = m1 * c[2];
        c[0] = high1 ^ c[1] ^ k0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ k1;
        c[3] = low0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
}

// The random bits of a block of a row: 16 of each of its 8 numbers, from the low end.
struct mics_mask_block {
    uint32_t words[4];

    __device__ __forceinline__ uint32_t of(int number) const
    {
        return words[number / 2] >> 16 * (number % 2) & 0xffffU;
    }
};

static __device__ __forceinline__ mics_mask_block random_block(const mics_mask &mask, int64_t block,
                                                               int64_t row)
{
    mics_mask_block bits = {
        {static_cast<uint32_t>(block), static_cast<uint32_t>(row), mask.number, mask.sequence}};
    make_random(bits.words, mask.key0, mask.key1);
    return bits;
}

// Whether the 8 numbers of a block of a row are kept: bit i is of number i.
static __device__ __forceinline__ uint32_t keep_bits(const mics_mask &mask, int64_t block,
                                                     int64_t row)
{
    uint32_t c[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(row), mask.number,
                     mask.sequence};
    make_random(c, mask.key0, mask.key1);
    uint32_t bits = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i)
        bits |= static_cast<uint32_t>((c[i / 2] >> 16 * (i % 2) & 0xffffU) >= mask.threshold) << i;
    return bits;
}
