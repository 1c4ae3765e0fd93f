// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#ifndef MICS_OPS_ATTENTION_DEF_H
#define MICS_OPS_ATTENTION_DEF_H

#include <stdint.h>

// The CPU's kernels work in square tiles.
enum { MICS_ATTENTION_TILE = 64 };

/* Floats of workspace that they need a thread, for head dimension D: two tiles of scores, eight of
 * D columns rounded up to the widest vector, and a few rows. */
static inline int64_t mics_attention_workspace(int64_t D)
{
    return (int64_t)MICS_ATTENTION_TILE * (2 * MICS_ATTENTION_TILE + 8 * ((D + 15) / 16 * 16) + 4);
}

#endif
