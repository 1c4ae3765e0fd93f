// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// States of optimizers in a byte: the dynamic code that CPU and GPU share (Dettmers et al., 2022,
// arXiv:2110.02861, section 1.3; create_dynamic_map of bitsandbytes 0.48).
//
// Each of seven decades of magnitudes, [1e-7, 1e-6] to [0.1, 1], has the middles of as many equal
// parts, 2 to 128 of squares; of numbers with a sign half as many, and their negatives. 0 and 1
// come beside. Numbers ascend with their bytes. There is no -1: a block's scale has the sign of its
// largest element, which therefore is 1.
#pragma once

#include "ops/kernels.h"
#include <string.h>

// Kernels of a GPU call what is marked so.
#ifdef __CUDACC__
#define MICS_STATE_SHARED static inline __host__ __device__
#else
#define MICS_STATE_SHARED static inline
#endif

enum { MICS_STATE_CODES = 256, MICS_STATE_DECADES = 7 };

typedef struct mics_state_code {
    float values[MICS_STATE_CODES];  // what a byte stands for, times the block's scale
    float middles[MICS_STATE_CODES]; // between it and the next one; the last has none
    bool squares;
} mics_state_code;

/* No product is added to anything before it is rounded: the same bits on every machine. */
static inline mics_state_code mics_state_code_of(bool squares)
{
    static const double tops[MICS_STATE_DECADES] = {1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
    mics_state_code code;
    int at = squares ? 0 : MICS_STATE_CODES / 2 - 1;
    const int zero = at;
    code.squares = squares;
    code.values[at++] = 0;
    for (int decade = 0; decade < MICS_STATE_DECADES; ++decade) {
        const int parts = (squares ? 2 : 1) << decade;
        for (int k = 0; k < parts; ++k)
            code.values[at++] = (float)(tops[decade] * (0.1 + 0.9 * (k + 0.5) / parts));
    }
    code.values[at] = 1;
    for (int i = 1; i <= zero; ++i)
        code.values[zero - i] = -code.values[zero + i];
    for (int i = 0; i + 1 < MICS_STATE_CODES; ++i)
        code.middles[i] = (code.values[i] + code.values[i + 1]) / 2;
    code.middles[MICS_STATE_CODES - 1] = 2;
    return code;
}

// A number's magnitude above its sign, so that the largest of a block is a maximum of integers: of
// equal magnitudes a positive one, and what is not finite above all else.
MICS_STATE_SHARED uint32_t mics_state_key_of_bits(uint32_t bits)
{
    return bits << 1 | (bits >> 31 ^ 1U);
}

/* The bits of a block's scale, whose largest element has such a key: +0 below 2^-100, where
 * products with the code would lose bits. */
MICS_STATE_SHARED uint32_t mics_state_scale_bits(uint32_t key)
{
    const uint32_t least = (127U - 100U) << 23, magnitude = key >> 1;
    return magnitude < least ? 0 : magnitude | (~key & 1U) << 31;
}
