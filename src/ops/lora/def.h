// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels of all devices agree on.
#pragma once

#include "ops/common/def.h"

enum { MICS_LORA_DECODE_ROWS = 16 }; // of generation, at a time

/* Rows of A. */
static inline int64_t mics_lora_rank(const mics_lora *of)
{
    return of->slices * of->rank;
}

/* Rows of B that lie before those of slice `slices`; of all slices: how many there are. */
static inline int64_t mics_lora_columns(const mics_lora *of, int32_t slices)
{
    int64_t columns = 0;
    for (int32_t i = 0; i < slices; i++)
        columns += of->count[i];
    return columns;
}

// Where the parts of a workspace begin, floats. In front lies scale x A^T, or its gradient, (N,
// slices * rank) of the call's dtype.
typedef struct mics_lora_space {
    int64_t wide;    // the same in fp32, on the CPU in bf16: it is scaled, then rounded
    int64_t dropped; // (N, I): the input of a slice, or its gradient; none without dropout
    int64_t gemm;
} mics_lora_space;

static inline mics_lora_space mics_lora_space_of(const mics_op_shape *s, int64_t elem_bytes,
                                                 bool widens)
{
    const int64_t low = s->N * mics_lora_rank(&s->op->lora);
    mics_lora_space space;
    space.wide = widens ? mics_part_floats(low * elem_bytes) : 0;
    space.dropped = space.wide + mics_part_floats(low * (widens ? 4 : elem_bytes));
    space.gemm =
        space.dropped + (s->op->dropout > 0 ? mics_part_floats(s->N * s->in[1] * elem_bytes) : 0);
    return space;
}
