// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Generation: each token alone, and its rows in no order.
#include "ops/common/decode.h"
#include "ops/common/experts_decode.h"
#include "ops/router/scores.h"

void MICS_ISA_OP(router_decode)(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t C = call->shape.in[0];
    const float *x = call->in[0];
    float *out = call->out;
    for (int64_t n = 0; n < call->shape.N; ++n) {
        float *row = call->stats + n * mics_route_floats(e);
        for (int64_t i = 0; i < e.count; ++i)
            row[i] = mics_dot_row(call->params[0], call->weights, i * C, x + n * C, C);
        router_choose(row, e);
        for (int32_t j = 0; j < e.chosen; ++j)
            out[n * e.chosen + j] = router_weight(row, call->shape.op, j);
    }
}
