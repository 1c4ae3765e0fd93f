// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The kernels of one instruction set, of one dtype.
#include "ops/common/kernels_isa.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define ROW(NAME, op) [MICS_OP_##NAME] = &MICS_OP(op##_kernels),
#define UPDATE(NAME, optimizer) [MICS_OPTIMIZER_##NAME] = MICS_OP(optimizer##_update),

extern const mics_kernels MICS_OP(kernels), MICS_ISA_OP(bf16_kernels);

const mics_kernels MICS_OP(kernels) = {
    .name = MICS_ELEM_FP32 ? TEXT(MICS_ISA) : TEXT(MICS_ISA) " bf16",
    .bf16 = MICS_ELEM_FP32 ? &MICS_ISA_OP(bf16_kernels) : NULL,
    .ops = {MICS_OPS(ROW)},
    .accumulate = MICS_OP(accumulate),
    .sum_losses = MICS_ISA_OP(sum_losses),
    .preference = MICS_ISA_OP(preference),
    .sum_squares = MICS_ISA_OP(sum_squares),
    .sum_squares_rounded = MICS_ELEM_FP32 ? NULL : MICS_ISA_OP(sum_squares_bf16),
    .update = {MICS_OPTIMIZERS(UPDATE)},
    .pack_state = MICS_ISA_OP(pack_state),
    .unpack_state = MICS_ISA_OP(unpack_state),
    .sum_blocks = MICS_OP(sum_blocks),
    .sum_blocks_rounded = MICS_OP(sum_blocks_rounded),
    .round = MICS_OP(round),
    .widen = MICS_OP(widen),
    .hash = MICS_ISA_OP(hash),
    .meet_change = MICS_ISA_OP(meet_change),
    .meet_step = MICS_ISA_OP(meet_step),
    .meet_adopt = MICS_ISA_OP(meet_adopt),
    .meet_round = MICS_ISA_OP(meet_round),
    .pack_bf16 = MICS_ISA_OP(pack_bf16),
    .unpack_bf16 = MICS_ISA_OP(unpack_bf16),
    .add_bf16 = MICS_ISA_OP(add_bf16),
    .pack_int8 = MICS_ISA_OP(pack_int8),
    .unpack_int8 = MICS_ISA_OP(unpack_int8),
    .add_int8 = MICS_ISA_OP(add_int8),
    .pack_int4 = MICS_ISA_OP(pack_int4),
    .unpack_int4 = MICS_ISA_OP(unpack_int4),
    .add_int4 = MICS_ISA_OP(add_int4),
    .draw_normal = MICS_ISA_OP(draw_normal),
};
