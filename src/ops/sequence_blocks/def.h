// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which number of a block is which of a row, on the CPU and on accelerators.
#pragma once

#include "mics/op.h"

#ifdef __CUDACC__
#define MICS_SEQUENCE_SHARED static inline __host__ __device__
#else
#define MICS_SEQUENCE_SHARED static inline
#endif

// X rows of heads of D numbers: Q query heads, K key and K value heads, of which each goes to `repeats`
// places. Block s, (X, width), has Q / S query heads of each row, and as many of the others as places
// are for each rank.
typedef struct mics_sequence_layout {
    int64_t X, S, Q, K, repeats, D;
    int64_t width; // of a row in a block
} mics_sequence_layout;

MICS_SEQUENCE_SHARED int64_t mics_sequence_row(const mics_sequence_layout *l)
{
    return (l->Q + 2 * l->K) * l->D;
}

/* Places of head h of a row. */
MICS_SEQUENCE_SHARED int64_t mics_sequence_places(const mics_sequence_layout *l, int64_t h)
{
    return h < l->Q ? 1 : l->repeats;
}

/* Where a place of head h of row x begins among all blocks. */
MICS_SEQUENCE_SHARED int64_t mics_sequence_at(const mics_sequence_layout *l, int64_t x, int64_t h,
                                              int64_t place)
{
    const int64_t q = l->Q / l->S, k = l->K * l->repeats / l->S;
    if (h < l->Q)
        return (h / q * l->X + x) * l->width + h % q * l->D;
    const int64_t pair = (h - l->Q) % l->K * l->repeats + place;
    return (pair / k * l->X + x) * l->width + (q + (h - l->Q) / l->K * k + pair % k) * l->D;
}

#ifdef __cplusplus
extern "C" {
#endif

/* The layout of an op: of heads (tokens of a rank), or of whole sequences, each S heads. */
mics_sequence_layout mics_sequence_layout_of(const mics_op_shape *shape);

#ifdef __cplusplus
}
#endif
