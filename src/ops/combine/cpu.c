// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Each token's sum over its experts' rows by the router's weights; dropped rows give nothing.
#include "ops/common/experts_travel.h"

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const int32_t chosen = call->shape.op->experts.chosen;
    const experts_blocks of = experts_blocks_of(call, C, call->shape.in[0]);
    const int32_t *first = experts_block_firsts(call);
    const mics_elem *rows = call->in[0], *weights = call->in[1];
    mics_elem *y = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        enum { PART = 256 };
        for (int64_t begin = 0; begin < C; begin += PART) {
            const int64_t part = mics_smaller(PART, C - begin);
            float sum[PART] = {0};
            for (int32_t j = 0; j < chosen; ++j) {
                const int64_t at = experts_sent_at(call, of, first, n, j);
                if (at < 0)
                    continue;
                const mics_elem *row = rows + at + begin;
                const float weight = mics_load(weights[n * chosen + j]);
#pragma omp simd
                for (int64_t c = 0; c < part; ++c)
                    sum[c] += weight * mics_load(row[c]);
            }
            for (int64_t c = 0; c < part; ++c)
                y[n * C + begin + c] = mics_store(sum[c]);
        }
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const int32_t chosen = call->shape.op->experts.chosen;
    const experts_blocks of = experts_blocks_of(call, C, call->shape.in[0]);
    const int32_t *first = experts_block_firsts(call);
    const mics_elem *rows = call->in[0], *weights = call->in[1], *dy = call->dout;
    mics_elem *drows = call->din, *dweights = call->din_second;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        for (int32_t j = 0; j < chosen; ++j) {
            const int64_t at = experts_sent_at(call, of, first, n, j);
            const float weight = mics_load(weights[n * chosen + j]);
            const mics_elem *dy_C = dy + n * C;
            float sum = 0;
#pragma omp simd reduction(+ : sum)
            for (int64_t c = 0; c < (dweights && at >= 0 ? C : 0); ++c)
                sum += mics_load(dy_C[c]) * mics_load(rows[at + c]);
            if (dweights)
                dweights[n * chosen + j] = mics_store(sum);
#pragma omp simd
            for (int64_t c = 0; c < (drows && at >= 0 ? C : 0); ++c)
                drows[at + c] = mics_store(weight * mics_load(dy_C[c]));
        }
}

const mics_op_kernels MICS_OP(combine_kernels) = {.forward = forward, .backward = backward};
