// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// An adapter in generation, whose rows the threads divide: plain sums, for the linear before
// it takes a hundred times as long. Each row of A and B is read, and widened, once for some tokens.
#include "ops/common/decode.h"
#include "ops/lora/def.h"

// A row of A or B; of bf16 it is widened to `space`.
static const float *row_of(const mics_op_call *call, int param, int64_t row, float *space)
{
    const int64_t width = call->shape.params[param][1];
    if (call->weights != MICS_DTYPE_BF16)
        return (const float *)call->params[param] + row * width;
    MICS_ISA_OP(unpack_bf16)(space, (const uint16_t *)call->params[param] + row * width, width);
    return space;
}

static float dot(const float *a, const float *b, int64_t elems)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < elems; ++i)
        sum += a[i] * b[i];
    return sum;
}

static void adapt_rows(const mics_op_call *call, int64_t first, int64_t rows)
{
    const mics_lora *of = &call->shape.op->lora;
    const int64_t I = call->shape.in[1], O = call->shape.out, R = mics_lora_rank(of), r = of->rank;
    const float *x = (const float *)call->in[1] + first * I;
    float *low = call->at->workspace, *space = low + MICS_LORA_DECODE_ROWS * R;
    float *y = (float *)call->out + first * O;
    memcpy(y, (const float *)call->in[0] + first * O, (size_t)(rows * O) * sizeof *y);
    for (int64_t k = 0; k < R; ++k) {
        const float *a = row_of(call, 0, k, space);
        for (int64_t n = 0; n < rows; ++n)
            low[n * R + k] = of->scale * dot(x + n * I, a, I);
    }
    for (int32_t i = 0; i < of->slices; ++i)
        for (int64_t o = 0; o < of->count[i]; ++o) {
            const float *b = row_of(call, 1, mics_lora_columns(of, i) + o, space);
            for (int64_t n = 0; n < rows; ++n)
                y[n * O + of->first[i] + o] += dot(low + n * R + i * r, b, r);
        }
}

void MICS_ISA_OP(lora_decode)(const mics_op_call *call)
{
    enum { ROWS = MICS_LORA_DECODE_ROWS };
    const int64_t N = call->shape.N;
    for (int64_t first = 0; first < N; first += ROWS)
        adapt_rows(call, first, N - first < ROWS ? N - first : ROWS);
}
