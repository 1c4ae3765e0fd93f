// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows of the tables of tokens, positions and token types, and their gradients. Shapes: see
// mics/kernels.h.
#include "ops/common/decode.h"
#include "ops/common/kernels_isa.h"
#include <string.h>

// Backward gives each task so many columns: tasks never meet, and each adds its rows in order.
enum { STRIPE = 64 };

// The row of the position table that a sequence's first token has; NULL where there is no table.
static const mics_elem *first_position(const mics_op_call *call)
{
    const mics_elem *wpe_PC = call->params[1];
    return wpe_PC ? wpe_PC + call->shape.op->first_position * call->shape.out : NULL;
}

// Of a token in its sequence, or, where positions restart, in its segment, which is numbered by its
// first token's place; what is of none stands at 0.
static inline int64_t position_of(const mics_op_call *call, int64_t n)
{
    const int64_t t = call->position + n % call->shape.T;
    if (call->segments == NULL)
        return t;
    return call->segments[n] < 0 ? 0 : t - call->segments[n];
}

static void add_row(mics_elem *y_C, const mics_elem *row_C, int64_t C)
{
#pragma omp simd
    for (int64_t c = 0; c < C; ++c)
        y_C[c] = mics_store(mics_load(y_C[c]) + mics_load(row_C[c]));
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const int32_t *tokens_N = call->tokens;
    const mics_elem *wte_VC = call->params[0], *wpe_TC = first_position(call);
    const mics_elem *type_C = call->params[2];
    mics_elem *y_NC = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        mics_elem *y_C = y_NC + n * C;
        memcpy(y_C, wte_VC + tokens_N[n] * C, (size_t)C * sizeof *y_C);
        if (wpe_TC)
            add_row(y_C, wpe_TC + position_of(call, n) * C, C);
        if (type_C)
            add_row(y_C, type_C, C);
    }
}

static void zero_rows(mics_elem *rows, int64_t count, int64_t C)
{
#pragma omp parallel for if (count * C >= MICS_OP_PARALLEL)
    for (int64_t row = 0; row < count; ++row)
        memset(rows + row * C, 0, (size_t)C * sizeof *rows);
}

// Gradients that are added to one row of a table: rows first, first + step ... of dy, or those that
// `rows` numbers.
typedef struct addends {
    const mics_elem *dy_NC;
    const int32_t *rows;
    int64_t first, step, count, C;
} addends;

// The columns from `column` on are summed in fp32, and rounded once.
static void add_columns(mics_elem *table, int64_t row, const addends *from, int64_t column)
{
    const int64_t width = from->C - column < STRIPE ? from->C - column : STRIPE;
    mics_elem *dst = table + row * from->C + column;
    float sum[STRIPE];
#pragma omp simd
    for (int64_t i = 0; i < width; ++i)
        sum[i] = mics_load(dst[i]);
    for (int64_t k = 0; k < from->count; ++k) {
        const int64_t n = from->rows ? from->rows[k] : from->first + k * from->step;
        const mics_elem *dy = from->dy_NC + n * from->C + column;
#pragma omp simd
        for (int64_t i = 0; i < width; ++i)
            sum[i] += mics_load(dy[i]);
    }
#pragma omp simd
    for (int64_t i = 0; i < width; ++i)
        dst[i] = mics_store(sum[i]);
}

// Adds a stripe of all rows to a table, whose row n is of is rows_N[n]. Sorted by these, the rows of
// one are a run.
static void add_runs(const mics_op_call *call, int p, const int32_t *rows_N, const int32_t *order_N,
                     int64_t column)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    for (int64_t begin = 0, end; begin < N; begin = end) {
        const int32_t row = rows_N[order_N ? order_N[begin] : begin];
        for (end = begin + 1; order_N && end < N && rows_N[order_N[end]] == row;)
            ++end;
        const addends run = {.dy_NC = call->dout,
                             .rows = order_N ? order_N + begin : NULL,
                             .first = begin,
                             .count = end - begin,
                             .C = C};
        add_columns(call->dparams[p], row, &run, column);
    }
}

static void add_positions(const mics_op_call *call, int64_t column)
{
    const int64_t N = call->shape.N, T = call->shape.T, C = call->shape.out;
    const int64_t first = call->shape.op->first_position + call->position;
    for (int64_t t = 0; t < T && t < N; ++t) {
        const addends all = {
            .dy_NC = call->dout, .first = t, .step = T, .count = (N - t + T - 1) / T, .C = C};
        add_columns(call->dparams[1], first + t, &all, column);
    }
}

static void add_type(const mics_op_call *call, int64_t column)
{
    const addends all = {
        .dy_NC = call->dout, .step = 1, .count = call->shape.N, .C = call->shape.out};
    add_columns(call->dparams[2], 0, &all, column);
}

static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    for (int p = 0; p < MICS_OP_PARAMS; ++p) {
        if (call->dparams[p] && !call->add_params[p])
            zero_rows(call->dparams[p], call->shape.params[p][0], C);
    }
    int32_t *space = call->at->workspace;
    int32_t *order_N = NULL; // in fp32 sums may lie in the table, which is not rounded more for it
    if (!MICS_ELEM_FP32 && call->dparams[0]) {
        order_N = space;
        space += N + call->shape.params[0][0] + 1;
        mics_op_sort_tokens(order_N, call->tokens, N, call->shape.params[0][0], order_N + N);
    }
    int32_t *place_N = NULL; // in the table of positions, where they restart; behind it their order
    if (call->segments != NULL && call->dparams[1]) {
        place_N = space;
        for (int64_t n = 0; n < N; ++n)
            place_N[n] = (int32_t)(call->shape.op->first_position + position_of(call, n));
        mics_op_sort_tokens(place_N + N, place_N, N, call->shape.params[1][0], place_N + 2 * N);
    }
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t column = 0; column < C; column += STRIPE) {
        if (call->dparams[0])
            add_runs(call, 0, call->tokens, order_N, column);
        if (place_N)
            add_runs(call, 1, place_N, place_N + N, column);
        else if (call->dparams[1])
            add_positions(call, column);
        if (call->dparams[2])
            add_type(call, column);
    }
}

const mics_op_kernels MICS_OP(embedding_kernels) = {
    .forward = forward,
    .backward = backward,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(embedding_decode) : NULL};
