// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Generation: threads divide the outputs, so that few weights are in use at a time.
#include "ops/common/decode.h"
#include "ops/common/experts_decode.h"

void MICS_ISA_OP(experts_in_decode)(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t I = call->shape.in[0], O = call->shape.out / e.chosen;
    const int64_t total = (O + MICS_EXPERTS_SHARE - 1) / MICS_EXPERTS_SHARE;
    const float *x = call->in[0];
    float *y = call->out;
    for (int64_t share = -1; mics_share_next(call->shares, total, &share);) {
        const int64_t begin = share * MICS_EXPERTS_SHARE;
        const int64_t end = mics_smaller(begin + MICS_EXPERTS_SHARE, O);
        for (int64_t row = 0; row < call->shape.N * e.chosen; ++row) {
            const int64_t n = row / e.chosen;
            const int64_t expert = mics_route_chosen(call->routes, e, n)[row % e.chosen];
            for (int64_t o = begin; o < end; ++o)
                y[row * O + o] =
                    mics_dot_row(call->params[0], call->weights,
                                 expert * call->shape.expert_elems + o * I, x + n * I, I);
        }
    }
}
