// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Small tiles of attention on the CPU, in fp32. N and ldb are multiples of MICS_LANES; results have
// room for whole vectors.
#pragma once

#include "ops/attention/def.h"
#include "ops/attention/triangle.h"
#include "ops/common/kernels_isa.h"

typedef struct tile {
    const float *data;
    int64_t row, column; // strides
} tile;

/* c (M, N) (+)= A (M, K) b (K, N) by the calling thread, without the parts that `part` names. */
void MICS_ISA_OP(tile_multiply)(float *c, int64_t ldc, tile a, const float *b, int64_t ldb,
                                int64_t M, int64_t N, int64_t K, bool add, triangle part);

/* dst (W, MICS_ATTENTION_TILE) = scale * src (rows, W) transposed; rows in whole vectors. */
void MICS_ISA_OP(tile_transpose)(float *dst, const float *src, int64_t W, int64_t rows,
                                 float scale);
