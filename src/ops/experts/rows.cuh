// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where the rows of tokens at their experts lie (def.h): by the stats of a router, sorted or in
// blocks that travel, and by the tags of rows that came.
#pragma once

#include "ops/common/numbers.cuh"
#include "ops/experts/def.h"
#include "ops/experts/experts_cuda.h"

// Rows of a token's experts, behind its choices in the router's stats.
struct routes_of_tokens {
    const float *routes;
    int64_t stride;        // floats of a token
    int at, count, chosen; // at: where the choices begin

    // `count` of a row that is dropped.
    __device__ __forceinline__ int32_t expert(int64_t n, int j) const
    {
        const int32_t choice = __float_as_int(routes[n * stride + at + j]);
        return choice < 0 ? count : choice;
    }
    __device__ __forceinline__ int32_t row(int64_t n, int j) const
    {
        return __float_as_int(routes[n * stride + at + chosen + j]);
    }
};

static inline routes_of_tokens tokens_of(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    return {call->routes, mics_route_floats(e), e.count + 2, e.count, e.chosen};
}

// Rows of `width` numbers at the sender: sorted, or each in the block of the rank that keeps its
// expert, where those that are dropped have no place.
struct rows_of_tokens {
    routes_of_tokens from;
    const int32_t *first; // each expert's first sorted row; NULL: rows lie sorted
    int32_t kept;         // experts of a rank
    int64_t block_elems, width;

    // Where the row of a token's expert number j begins; -1: it has no place.
    __device__ __forceinline__ int64_t place(int64_t n, int j) const
    {
        const int64_t row = from.row(n, j);
        if (first == nullptr)
            return row * width;
        const int32_t expert = from.expert(n, j);
        if (expert == from.count)
            return -1;
        const int32_t block = expert / kept;
        return block * block_elems + (row - first[block * kept]) * width;
    }
};

// Of an op that sends rows, or to which they come back.
static inline rows_of_tokens sent_rows(const mics_op_call *call, const mics_cuda_routes *routes,
                                       int64_t width, int64_t tensor_width)
{
    const mics_op *op = call->shape.op;
    return {tokens_of(call), routes->first, mics_experts_kept(op),
            call->shape.N * tensor_width / op->expert_ranks, width};
}

// A tag has the bytes of a number.
template <typename T> static __device__ __forceinline__ void put_tag(T *to, uint32_t tag)
{
    store_words(to, static_cast<typename mics_words<sizeof(T)>::type>(tag));
}

// At the experts: the tags of the rows that came, of which a block's are sorted.
template <typename T> struct tags_of_rows {
    const T *from; // the first block's; NULL: all rows are of use
    int64_t block_elems, rows;

    __device__ __forceinline__ uint32_t tag(int64_t block, int64_t row) const
    {
        return load_words<typename mics_words<sizeof(T)>::type>(from + block * block_elems + row);
    }
    // Whether row `row` of all blocks is of use.
    __device__ __forceinline__ bool holds(int64_t row) const
    {
        return from == nullptr || tag(row / rows, row % rows) != MICS_ROW_NONE;
    }
    // The first row of a block whose tag is not below `expert`.
    __device__ __forceinline__ int32_t first(int64_t block, uint32_t expert) const
    {
        int64_t low = 0, high = rows;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            if (tag(block, middle) < expert)
                low = middle + 1;
            else
                high = middle;
        }
        return static_cast<int32_t>(low);
    }
};

// None where rows do not travel.
template <typename T> static inline tags_of_rows<T> tags_that_came(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    if (s->op->expert_ranks == 0)
        return {nullptr, 0, 1};
    const int64_t rows = mics_experts_block_rows(s);
    const T *came = static_cast<const T *>(static_cast<const void *>(call->routes));
    return {came + rows * mics_experts_came_width(s), s->N * s->routes / s->op->expert_ranks, rows};
}
