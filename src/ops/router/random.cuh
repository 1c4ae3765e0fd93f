// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is random in a router in training: noise of its input, and whether a token's second expert is
// kept (mics_router_spec).
#pragma once

#include "ops/common/mask.cuh"

namespace
{

struct router_random {
    mics_masks masks; // draw NULL: nothing is random
    float jitter;     // 0: no noise
    bool second;      // seconds are random
    int64_t T;        // tokens of a sequence
};

inline router_random router_random_of(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    router_random random = {};
    if (call->draw == nullptr)
        return random;
    random.masks.draw = call->draw;
    random.masks.first = op->mask;
    random.masks.position = static_cast<uint32_t>(call->position);
    random.jitter = op->router.jitter;
    random.second = op->router.random_second;
    random.T = call->shape.T;
    return random;
}

__device__ __forceinline__ float noise_of(const router_random &random, uint32_t bits)
{
    return 1 + random.jitter * ((static_cast<float>(bits) + 0.5F) / 32768.0F - 1);
}

// What COUNT numbers from `c` on of token n's input are multiplied by; c is a multiple of COUNT, 1,
// 4 or 8.
template <int COUNT>
__device__ __forceinline__ void noise_at(float (&noise)[COUNT], const router_random &random,
                                         int64_t n, int64_t c)
{
    const mics_mask mask = mask_at(random.masks, n / random.T, 0);
    const mics_mask_block bits = random_block(mask, c / 8, random.masks.position + n % random.T);
    const int first = static_cast<int>(c % 8);
#pragma unroll
    for (int i = 0; i < 8; ++i)
        if (i / COUNT * COUNT == first)
            noise[i % COUNT] = noise_of(random, bits.of(i));
}

// Whether chance leaves out the second expert of token n, whose share of the two weights is `share`.
__device__ __forceinline__ bool leaves_out_second(const router_random &random, int64_t n,
                                                  float share)
{
    if (!random.second)
        return false;
    const mics_mask mask = mask_at(random.masks, n / random.T, 1);
    const mics_mask_block bits = random_block(mask, 0, random.masks.position + n % random.T);
    return static_cast<float>(bits.of(0)) >= 65536.0F * 2 * share;
}

} // namespace
