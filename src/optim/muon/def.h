// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The order of Muon's settings and states, on which its descriptor and its kernels agree. The first
// ones are AdamW's, whose rule the rest of the parameters have.
#pragma once

#include "optim/adamw/def.h"
#include <stdint.h>

enum {
    MUON_MOMENTUM = ADAMW_SETTINGS,
    MUON_NESTEROV,
    MUON_STEPS,
    MUON_MATCHES_ADAMW,
    MUON_SETTINGS
};

enum { MUON_ITERATIONS = 5 }; // of MUON_STEPS, where nobody says

// What a matrix has in the workspace, each part on 256 bytes: offsets, floats. A copy of it, as its
// GEMMs read it, lies at the beginning.
typedef struct muon_layout {
    int64_t gram, quadratic; // (side, side), of the smaller of rows and columns
    int64_t sums;            // a GPU's: the norm, and what its sum takes
    int64_t end;
    int64_t side;
} muon_layout;

static inline int64_t muon_rounded(int64_t floats)
{
    return (floats + 63) / 64 * 64;
}

static inline muon_layout muon_layout_of(int64_t rows, int64_t columns)
{
    muon_layout at = {0, 0, 0, 0, rows < columns ? rows : columns};
    at.gram = muon_rounded(rows * columns);
    at.quadratic = at.gram + muon_rounded(at.side * at.side);
    at.sums = at.quadratic + muon_rounded(at.side * at.side);
    at.end = at.sums + 4096;
    return at;
}
