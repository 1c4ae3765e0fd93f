// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Logits in generation, of the last token of each sequence.
#include "ops/common/decode.h"
#include "ops/common/gemv.h"

void MICS_ISA_OP(lm_head_decode)(const mics_op_call *call)
{
    const int64_t V = call->shape.params[0][0], C = call->shape.params[0][1], T = call->shape.T;
    const mics_gemv product = {.y = call->token_logits,
                               .x = (const float *)call->in[0] + (T - 1) * C,
                               .x_stride = T * C,
                               .weight = call->params[0],
                               .bias = call->params[1],
                               .dtype = call->weights,
                               .out_in = true,
                               .R = call->shape.B,
                               .I = C,
                               .O = V};
    MICS_ISA_OP(gemv)(&product, call->shares);
}
