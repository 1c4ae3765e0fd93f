// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What activations and parameters are held in. The files of kernels are compiled for fp32 and, with
// MICS_ELEM_BF16 given by the build, once more for bf16; they compute in fp32 and round when they
// store. Branches on MICS_ELEM_FP32 are decided by the compiler.
#pragma once

#include <stdint.h>
#include <string.h>

#ifdef MICS_ELEM_BF16

// A structure, so that one taken for a number does not compile.
typedef struct mics_elem {
    uint16_t bits;
} mics_elem;

enum { MICS_ELEM_FP32 = 0 };

static inline float mics_load(mics_elem elem)
{
    const uint32_t bits = (uint32_t)elem.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Nearest, ties to even; beyond the largest bf16, infinity. A NaN stays one: made quiet, so that
 * one whose payload stood in the lower half does not become infinity. The same bits as
 * mics_kernels.pack_bf16. */
static inline mics_elem mics_store(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
    const uint32_t kept = (bits & 0x7fffffffU) > 0x7f800000U ? bits | 0x400000U : rounded;
    return (mics_elem){(uint16_t)(kept >> 16)};
}

#else

typedef float mics_elem;

enum { MICS_ELEM_FP32 = 1 };

static inline float mics_load(mics_elem elem)
{
    return elem;
}

static inline mics_elem mics_store(float value)
{
    return value;
}

#endif
