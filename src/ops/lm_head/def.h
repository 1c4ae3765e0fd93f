// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptor and the kernels agree on.
#pragma once

#include "base/size.h"
#include "mics/op.h"
#include "ops/linear/def.h"
#include <stdint.h>

// Rows of a tile of an accelerator's GEMMs.
enum { MICS_LM_HEAD_TILE = 128 };

/* Elements from one row of bf16 logits to the next on the CPU: rows begin on a cache line. */
static inline int64_t mics_logits_stride_bf16(int64_t V)
{
    return mics_size_round_up(V, 32);
}

/* Floats of workspace that so many rows of them take. */
static inline int64_t mics_logits_floats_bf16(int64_t rows, int64_t V)
{
    return rows * mics_logits_stride_bf16(V) / 2;
}

/* Floats of the weight's gradient where chunks of 2-byte numbers add to it in fp32; none of a frozen
 * weight. */
static inline int64_t mics_lm_head_sum_floats(const mics_op_shape *shape)
{
    return shape->params_fixed[0] ? 0 : shape->params[0][0] * shape->params[0][1];
}

/* Floats of workspace before the logits: the sum of the bias's gradient over chunks; on an
 * accelerator behind it those of blocks of rows (mics_cuda_bias_sum). */
static inline int64_t mics_lm_head_bias_floats(const mics_op_shape *shape)
{
    const int64_t blocks = shape->accelerator_bytes > 0 ? MICS_LINEAR_ACCELERATOR_BLOCKS : 0;
    return (1 + blocks) * mics_size_round_up(shape->params[1][0], 64);
}
