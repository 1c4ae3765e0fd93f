// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Row by row; backward takes a row's dot product before it writes, so that it may be in place.
#include "ops/common/kernels_isa.h"
#include <math.h>

static float sigmoid(float gate)
{
    return 1.0F / (1.0F + expf(-gate));
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const mics_elem *x = call->in[0], *gate_N = call->in[1];
    mics_elem *y = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const float by = sigmoid(mics_load(gate_N[n]));
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            y[n * C + c] = mics_store(mics_load(x[n * C + c]) * by);
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const mics_elem *x = call->in[0], *gate_N = call->in[1], *dy = call->dout;
    mics_elem *dx = call->din, *dgate_N = call->din_second;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const float by = sigmoid(mics_load(gate_N[n]));
        float dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t c = 0; c < (dgate_N ? C : 0); ++c)
            dot += mics_load(dy[n * C + c]) * mics_load(x[n * C + c]);
        if (dgate_N)
            dgate_N[n] = mics_store(dot * by * (1 - by));
#pragma omp simd
        for (int64_t c = 0; c < (dx ? C : 0); ++c) {
            const float own = mics_load(dy[n * C + c]) * by;
            dx[n * C + c] = mics_store(call->add_din ? mics_load(dx[n * C + c]) + own : own);
        }
    }
}

const mics_op_kernels MICS_OP(sigmoid_gate_kernels) = {.forward = forward, .backward = backward};
