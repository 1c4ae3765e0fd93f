// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The table of one instruction set.
#include "ops/common/kernels_isa.h"

#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

extern const mics_kernels MICS_OP_JOIN(kernels, MICS_ISA);

const mics_kernels MICS_OP_JOIN(kernels, MICS_ISA) = {
    .isa = TEXT(MICS_ISA),
    .embedding_forward = MICS_OP(embedding_forward),
    .embedding_backward = MICS_OP(embedding_backward),
    .layernorm_forward = MICS_OP(layernorm_forward),
    .layernorm_backward = MICS_OP(layernorm_backward),
    .linear_forward = MICS_OP(linear_forward),
    .linear_backward = MICS_OP(linear_backward),
    .gelu_forward = MICS_OP(gelu_forward),
    .gelu_backward = MICS_OP(gelu_backward),
    .attention_forward = MICS_OP(attention_forward),
    .attention_backward = MICS_OP(attention_backward),
    .attention_decode = MICS_OP(attention_decode),
    .add = MICS_OP(add),
    .lm_head_forward = MICS_OP(lm_head_forward),
    .lm_head_backward = MICS_OP(lm_head_backward),
    .adamw_update = MICS_OP(adamw_update),
    .sum_squares = MICS_OP(sum_squares),
    .accumulate = MICS_OP(accumulate),
    .pack_bf16 = MICS_OP(pack_bf16),
    .unpack_bf16 = MICS_OP(unpack_bf16),
    .add_bf16 = MICS_OP(add_bf16),
    .pack_int8 = MICS_OP(pack_int8),
    .unpack_int8 = MICS_OP(unpack_int8),
    .add_int8 = MICS_OP(add_int8),
};
