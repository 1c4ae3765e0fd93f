// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Generation: threads divide the outputs, so that few weights are in use at a time.
#include "ops/common/decode.h"
#include "ops/common/experts_decode.h"

// Output `o` of token n.
static float output(const mics_op_call *call, int64_t n, int64_t o)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t I = call->shape.in[0] / e.chosen;
    const int32_t *chosen = mics_route_chosen(call->routes, e, n);
    const float *x = (const float *)call->in[0] + n * call->shape.in[0];
    const float *weights = (const float *)call->in[1] + n * e.chosen;
    float sum = 0;
    for (int32_t j = 0; j < e.chosen; ++j)
        sum +=
            weights[j] * mics_dot_row(call->params[0], call->weights,
                                      chosen[j] * call->shape.expert_elems + o * I, x + j * I, I);
    return sum;
}

void MICS_ISA_OP(experts_out_decode)(const mics_op_call *call)
{
    const int64_t O = call->shape.out;
    const int64_t total = (O + MICS_EXPERTS_SHARE - 1) / MICS_EXPERTS_SHARE;
    float *y = call->out;
    for (int64_t share = -1; mics_share_next(call->shares, total, &share);) {
        const int64_t begin = share * MICS_EXPERTS_SHARE;
        const int64_t end = mics_smaller(begin + MICS_EXPERTS_SHARE, O);
        for (int64_t n = 0; n < call->shape.N; ++n)
            for (int64_t o = begin; o < end; ++o)
                y[n * O + o] = output(call, n, o);
    }
}
