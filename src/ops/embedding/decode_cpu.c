// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the tables of tokens, positions and token types in generation.
#include "ops/common/decode.h"
#include <string.h>

// A row of a table; bf16 is exact in fp32.
static void read_row(float *y_C, const void *table, mics_dtype dtype, int64_t row, int64_t C)
{
    if (dtype == MICS_DTYPE_BF16)
        MICS_ISA_OP(unpack_bf16)(y_C, (const uint16_t *)table + row * C, C);
    else
        memcpy(y_C, (const float *)table + row * C, (size_t)C * sizeof *y_C);
}

static void add_row(float *y_C, const void *table, mics_dtype dtype, int64_t row, int64_t C)
{
    if (dtype == MICS_DTYPE_BF16)
        MICS_ISA_OP(add_bf16)(y_C, (const uint16_t *)table + row * C, C);
    else
        MICS_OP(add)(y_C, y_C, (const float *)table + row * C, C);
}

void MICS_ISA_OP(embedding_decode)(const mics_op_call *call)
{
    const int64_t N = call->shape.N, T = call->shape.T, C = call->shape.out;
    const int64_t position = call->position + call->shape.op->first_position;
    for (int64_t n = 0; n < N; ++n) {
        float *y_C = (float *)call->out + n * C;
        read_row(y_C, call->params[0], call->weights, call->tokens[n], C);
        if (call->params[1])
            add_row(y_C, call->params[1], call->weights, position + n % T, C);
        if (call->params[2])
            add_row(y_C, call->params[2], call->weights, 0, C);
    }
}
