// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Each token's numbers to the rows of its experts, and the sum of their gradients back.
#include "ops/common/experts_travel.h"

static void put_tags(const mics_op_call *call, experts_blocks of)
{
    const mics_op *op = call->shape.op;
    const int32_t kept = mics_experts_kept(op);
    const int64_t rows = mics_experts_block_rows(&call->shape);
    const int32_t *first = call->at->workspace;
    mics_elem *y = call->out;
    for (int32_t b = 0; b < op->expert_ranks; ++b)
        for (int64_t r = 0; r < rows; ++r)
            experts_tag_put(y + experts_tags_at(call, of, b) + r, MICS_ROW_NONE);
    for (int64_t n = 0; n < call->shape.N; ++n)
        for (int32_t j = 0; j < op->experts.chosen; ++j) {
            const int32_t expert = mics_route_chosen(call->routes, op->experts, n)[j];
            if (mics_route_drops(expert))
                continue;
            const int32_t block = expert / kept;
            const int64_t row = mics_route_rows(call->routes, op->experts, n)[j] - first[block];
            experts_tag_put(y + experts_tags_at(call, of, block) + row, (uint32_t)(expert % kept));
        }
}

static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.in[0];
    const int32_t chosen = call->shape.op->experts.chosen;
    const experts_blocks of = experts_blocks_of(call, C, call->shape.out);
    const int32_t *first = experts_block_firsts(call);
    const mics_elem *x = call->in[0];
    mics_elem *y = call->out;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        for (int32_t j = 0; j < chosen; ++j) {
            const int64_t at = experts_sent_at(call, of, first, n, j);
            if (at >= 0)
                memcpy(y + at, x + n * C, (size_t)C * sizeof *x);
        }
    put_tags(call, of);
}

static void add_row(mics_elem *to, const mics_elem *from, int64_t C)
{
#pragma omp simd
    for (int64_t c = 0; c < C; ++c)
        to[c] = mics_store(mics_load(to[c]) + mics_load(from[c]));
}

// dx (N, C) (+)= the sum of a token's rows, best expert first; nothing of rows that are dropped.
static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.in[0];
    const int32_t chosen = call->shape.op->experts.chosen;
    const experts_blocks of = experts_blocks_of(call, C, call->shape.out);
    const int32_t *first = experts_block_firsts(call);
    const mics_elem *dy = call->dout;
    mics_elem *dx = call->din;
    if (dx == NULL)
        return;
#pragma omp parallel for if (N * C >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        if (!call->add_din)
            memset(dx + n * C, 0, (size_t)C * sizeof *dx);
        for (int32_t j = 0; j < chosen; ++j) {
            const int64_t at = experts_sent_at(call, of, first, n, j);
            if (at >= 0)
                add_row(dx + n * C, dy + at, C);
        }
    }
}

const mics_op_kernels MICS_OP(dispatch_kernels) = {.forward = forward, .backward = backward};
