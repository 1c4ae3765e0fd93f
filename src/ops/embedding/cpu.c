// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the token and position tables, and their gradients. Shapes: see mics/kernels.h.
#include "ops/common/kernels_isa.h"
#include <string.h>

// Backward gives each task so many columns: tasks never meet, and each adds its rows in order.
enum { STRIPE = 64 };

static void forward_rows(const mics_op_call *call, int64_t first_position)
{
    const int64_t N = call->shape.N, T = call->shape.T, C = call->shape.out;
    const int32_t *tokens_N = call->tokens;
    const float *wte_VC = call->params[0], *wpe_PC = call->params[1];
    float *y_NC = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        float *y_C = y_NC + n * C;
        const float *wte_C = wte_VC + tokens_N[n] * C;
        if (!wpe_PC) {
            memcpy(y_C, wte_C, (size_t)C * sizeof *y_C);
            continue;
        }
        const float *wpe_C = wpe_PC + (first_position + n % T) * C;
#pragma omp simd
        for (int64_t c = 0; c < C; ++c)
            y_C[c] = wte_C[c] + wpe_C[c];
    }
}

static void forward(const mics_op_call *call)
{
    forward_rows(call, 0);
}

static void decode(const mics_op_call *call)
{
    forward_rows(call, call->position);
}

static void zero_rows(float *rows, int64_t count, int64_t C)
{
#pragma omp parallel for if (count * C >= MICS_OP_PARALLEL)
    for (int64_t row = 0; row < count; ++row)
        memset(rows + row * C, 0, (size_t)C * sizeof *rows);
}

static void add_into(float *dst, const float *src, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        dst[i] += src[i];
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, T = call->shape.T, C = call->shape.out;
    const int32_t *tokens_N = call->tokens;
    const float *dy_NC = call->dout;
    float *dwte_VC = call->dparams[0], *dwpe_PC = call->dparams[1];
    if (!call->add_params[0])
        zero_rows(dwte_VC, call->shape.params[0][0], C);
    if (dwpe_PC && !call->add_params[1])
        zero_rows(dwpe_PC, call->shape.params[1][0], C);
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t column = 0; column < C; column += STRIPE) {
        int64_t width = C - column < STRIPE ? C - column : STRIPE;
        for (int64_t n = 0; n < N; ++n) {
            const float *dy = dy_NC + n * C + column;
            add_into(dwte_VC + tokens_N[n] * C + column, dy, width);
            if (dwpe_PC)
                add_into(dwpe_PC + n % T * C + column, dy, width);
        }
    }
}

const mics_op_kernels MICS_OP(embedding_kernels) = {
    .forward = forward, .backward = backward, .decode = decode};
