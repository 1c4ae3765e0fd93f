// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// An adapter in generation, whose rows the threads divide: products by GEMV, for A and B stay in the
// nearest caches over the rows of a prompt. The linear before it takes a hundred times as long.
#include "ops/common/decode.h"
#include "ops/common/gemv.h"
#include "ops/lora/def.h"
#include <string.h>

// B of a slice; params of two dimensions are of `weights`.
static const void *b_of(const mics_op_call *call, int32_t slice)
{
    const mics_lora *of = &call->shape.op->lora;
    const int64_t elems = mics_lora_columns(of, slice) * of->rank;
    return (const char *)call->params[1] + (size_t)elems * mics_dtype_bytes(call->weights);
}

// This thread alone computes.
static void multiply(const mics_gemv *product)
{
    mics_shares own = {0};
    MICS_ISA_OP(gemv)(product, &own);
}

// y += scale low B^T, in the columns of a slice. part: (rows, count).
static void add_slice(const mics_op_call *call, float *y, const float *low, int64_t rows,
                      int32_t slice, float *part)
{
    const mics_lora *of = &call->shape.op->lora;
    const int64_t O = call->shape.out, count = of->count[slice];
    const mics_gemv up = {.y = part,
                          .x = low + slice * of->rank,
                          .x_stride = mics_lora_rank(of),
                          .weight = b_of(call, slice),
                          .dtype = call->weights,
                          .out_in = true,
                          .R = rows,
                          .I = of->rank,
                          .O = count};
    multiply(&up);
    for (int64_t row = 0; row < rows; ++row) {
        float *to = y + row * O + of->first[slice];
#pragma omp simd
        for (int64_t c = 0; c < count; ++c)
            to[c] += of->scale * part[row * count + c];
    }
}

static void adapt_rows(const mics_op_call *call, int64_t first, int64_t rows)
{
    const mics_lora *of = &call->shape.op->lora;
    const int64_t I = call->shape.in[1], O = call->shape.out, rank = mics_lora_rank(of);
    float *low = call->at->workspace, *part = low + MICS_LORA_DECODE_ROWS * rank;
    float *y = (float *)call->out + first * O;
    const mics_gemv down = {.y = low,
                            .x = (const float *)call->in[1] + first * I,
                            .x_stride = I,
                            .weight = call->params[0],
                            .dtype = call->weights,
                            .out_in = true,
                            .R = rows,
                            .I = I,
                            .O = rank};
    multiply(&down);
    memcpy(y, (const float *)call->in[0] + first * O, (size_t)(rows * O) * sizeof *y);
    for (int32_t slice = 0; slice < of->slices; ++slice)
        add_slice(call, y, low, rows, slice, part);
}

void MICS_ISA_OP(lora_decode)(const mics_op_call *call)
{
    enum { ROWS = MICS_LORA_DECODE_ROWS };
    const int64_t N = call->shape.N;
    for (int64_t first = 0; first < N; first += ROWS)
        adapt_rows(call, first, N - first < ROWS ? N - first : ROWS);
}
