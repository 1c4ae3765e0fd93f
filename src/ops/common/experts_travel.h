// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where rows that travel lie (ops/experts/def.h), for the CPU's kernels.
#pragma once

#include "ops/common/kernels_isa.h"
#include "ops/experts/def.h"

// A tensor of rows of `width` numbers; `stride` numbers from a block to the next one.
typedef struct experts_blocks {
    int64_t width, stride;
} experts_blocks;

static inline experts_blocks experts_blocks_of(const mics_op_call *call, int64_t width,
                                               int64_t tensor_width)
{
    return (experts_blocks){width, call->shape.N * tensor_width / call->shape.op->expert_ranks};
}

/* Where a row lies: number `row` of block `block`. */
static inline int64_t experts_row_at(experts_blocks of, int64_t block, int64_t row)
{
    return block * of.stride + row * of.width;
}

static inline void experts_tag_put(mics_elem *to, uint32_t tag)
{
    memcpy(to, &tag, sizeof *to);
}

static inline uint32_t experts_tag_get(const mics_elem *from)
{
    uint32_t tag = 0;
    memcpy(&tag, from, sizeof *from);
    return tag;
}

/* The first tag of a block of the tensor that came to the experts, of rows of `width`. */
static inline int64_t experts_tags_at(const mics_op_call *call, experts_blocks of, int64_t block)
{
    return block * of.stride + mics_experts_block_rows(&call->shape) * of.width;
}

/* At the sender: how many rows go to the blocks before each one (expert_ranks, in the workspace);
 * dropped ones go nowhere. */
static inline int32_t *experts_block_firsts(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    const int32_t kept = mics_experts_kept(op);
    int32_t *first = call->at->workspace;
    memset(first, 0, (size_t)(op->expert_ranks + 1) * sizeof *first);
    for (int64_t n = 0; n < call->shape.N; ++n) {
        const int32_t *chosen = mics_route_chosen(call->routes, op->experts, n);
        for (int32_t j = 0; j < op->experts.chosen; ++j)
            if (!mics_route_drops(chosen[j]))
                first[chosen[j] / kept + 1]++;
    }
    for (int32_t b = 0; b < op->expert_ranks; ++b)
        first[b + 1] += first[b];
    return first;
}

/* At the sender: where the row of a token's expert of number j lies; -1: it is dropped. */
static inline int64_t experts_sent_at(const mics_op_call *call, experts_blocks of,
                                      const int32_t *first, int64_t n, int32_t j)
{
    const mics_experts e = call->shape.op->experts;
    const int32_t expert = mics_route_chosen(call->routes, e, n)[j];
    if (mics_route_drops(expert))
        return -1;
    const int32_t block = expert / mics_experts_kept(call->shape.op);
    return experts_row_at(of, block, mics_route_rows(call->routes, e, n)[j] - first[block]);
}

/* At the experts: the blocks of the tensor that came (call->routes). */
static inline experts_blocks experts_came(const mics_op_call *call)
{
    return experts_blocks_of(call, mics_experts_came_width(&call->shape), call->shape.routes);
}

/* At the experts: rows [runs[b * (kept + 1) + e], runs[b * (kept + 1) + e + 1]) of block b are of
 * expert e. */
static inline void experts_runs(const mics_op_call *call, int32_t *runs)
{
    const experts_blocks tags = experts_came(call);
    const mics_op *op = call->shape.op;
    const int32_t kept = mics_experts_kept(op);
    const int64_t rows = mics_experts_block_rows(&call->shape);
    const mics_elem *came = (const mics_elem *)(const void *)call->routes;
    memset(runs, 0, (size_t)op->expert_ranks * (size_t)(kept + 1) * sizeof *runs);
    for (int32_t b = 0; b < op->expert_ranks; ++b) {
        int32_t *of = runs + b * (kept + 1);
        const mics_elem *tag = came + experts_tags_at(call, tags, b);
        for (int64_t r = 0; r < rows; ++r) {
            const uint32_t expert = experts_tag_get(tag + r);
            if (expert == MICS_ROW_NONE)
                break;
            of[expert + 1]++;
        }
        for (int32_t e = 0; e < kept; ++e)
            of[e + 1] += of[e];
    }
}

/* At the experts: rows of a block. */
static inline int64_t experts_rows_in(const mics_op_call *call, int64_t block)
{
    const int64_t rows = mics_experts_block_rows(&call->shape);
    const mics_elem *tag = (const mics_elem *)(const void *)call->routes +
                           experts_tags_at(call, experts_came(call), block);
    int64_t count = 0;
    while (count < rows && experts_tag_get(tag + count) != MICS_ROW_NONE)
        count++;
    return count;
}
