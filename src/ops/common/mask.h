// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Masks of dropout and routers on the CPU: the random bits that mics_dropout_draw (kernels.h) defines.
#pragma once

#include "ops/common/kernels_isa.h"

// Numbers of a row that one block of random bits is for.
enum { MICS_MASK_BLOCK = 8 };

// One mask of one sequence.
typedef struct mics_mask {
    uint32_t key[2], number, sequence;
    uint32_t position;  // of the call's row 0
    uint32_t threshold; // 16 bits below it drop their number
    float scale;        // of what is kept
} mics_mask;

/* The mask of sequence `b` of a call's micro-batch, `head` behind the op's first.
 *
 * Needs:   a draw.
 */
static inline mics_mask mics_mask_of(const mics_op_call *call, int64_t b, int64_t head)
{
    const mics_op *op = call->shape.op;
    const mics_dropout_draw *draw = call->draw;
    return (mics_mask){.key = {draw->key[0], draw->key[1]},
                       .number = op->mask + (uint32_t)(call->first_head + head),
                       .sequence = draw->sequence + (uint32_t)b,
                       .position = (uint32_t)call->position,
                       .threshold = mics_dropout_threshold(op->dropout),
                       .scale = mics_dropout_scale(op->dropout)};
}

/* Whether a call drops anything. */
static inline bool mics_drops(const mics_op_call *call)
{
    return call->draw != NULL && call->shape.op->dropout > 0;
}

/* Random bits of `blocks` blocks, 2^blocks_log2 of each row, from block `first` of row `row` on:
 * bits (blocks, 8). One thread. */
void MICS_ISA_OP(mask_rows)(uint16_t *bits, const mics_mask *mask, int64_t row, int64_t first,
                            int32_t blocks_log2, int64_t blocks);

/* Block `block` of `rows` rows, transposed: bits (8, stride). One thread. */
void MICS_ISA_OP(mask_columns)(uint16_t *bits, int64_t stride, const mics_mask *mask, int64_t row,
                               int64_t rows, int64_t block);
