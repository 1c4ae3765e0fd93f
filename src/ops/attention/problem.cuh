// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One attention as its kernels see it, on tensor cores and in fp32.
#pragma once

#include "ops/attention/attention_cuda.h"
#include "ops/attention/def.h"
#include "ops/common/launch.cuh"
#include "ops/common/mask.cuh"
#include "ops/common/numbers.cuh"
#include <math.h>

namespace
{

// Before the first score of a query, whose scores of a whole tile may be hidden: not -inf.
constexpr float LOWEST = -1e38F;

template <typename T> struct problem {
    const T *qkv, *y, *dy;
    T *y_out, *dqkv;
    float *lse, *delta;
    int64_t T_, H, K, D; // query heads, key-value heads
    int64_t shared;      // query heads that read one key-value head
    int64_t row;         // numbers of a token's q, k and v
    // Query i sees keys from i - before to i + after, which are `window` in all: more than T_ where
    // there is no window.
    int before, after;
    unsigned window;
    const int32_t *segments; // (B, T), and of those only what is of its own; NULL: all are of one
    int64_t row_tiles;       // of one head
    float scale;             // 1 / sqrt(D)
    bool vectors;            // rows of heads begin on 16 bytes and are whole 16 bytes long
};

// Where the q, k and v of a sequence begin, of query head h or key-value head kv.
template <typename T>
__device__ __forceinline__ const T *queries_of(const problem<T> &p, int64_t b, int64_t h)
{
    return p.qkv + b * p.T_ * p.row + h * p.D;
}
template <typename T>
__device__ __forceinline__ const T *keys_of(const problem<T> &p, int64_t b, int64_t kv)
{
    return p.qkv + b * p.T_ * p.row + (p.H + kv) * p.D;
}
template <typename T>
__device__ __forceinline__ const T *values_of(const problem<T> &p, int64_t b, int64_t kv)
{
    return keys_of(p, b, kv) + p.K * p.D;
}

// Whether a query does not see a key that lies `distance` before it; behind it is less than 0.
template <typename T> __device__ __forceinline__ bool is_hidden(const problem<T> &p, int distance)
{
    return static_cast<unsigned>(distance + p.after) >= p.window;
}

// Tokens [begin, end) of a sequence.
struct token_range {
    int64_t begin, end;
};

// What a block's threads share while they narrow a range. It is the caller's: some kernels leave no
// byte of shared memory beside their tiles.
struct narrowing {
    int lowest, highest, begin, end;
};

// Of a range those from the first to the last whose segment may be one of `rows` tokens from
// `first` on, which are among them. All threads of a block call it; afterwards `in` is free.
template <typename T>
__device__ token_range narrowed(const problem<T> &p, narrowing &in, int64_t b, int64_t first,
                                int rows, token_range range)
{
    if (p.segments == nullptr)
        return range;
    const int32_t *segments = p.segments + b * p.T_;
    if (threadIdx.x == 0)
        in = {INT32_MAX, INT32_MIN, INT32_MAX, 0};
    __syncthreads();
    for (int64_t t = first + threadIdx.x; t < first + rows && t < p.T_; t += blockDim.x) {
        atomicMin(&in.lowest, segments[t]);
        atomicMax(&in.highest, segments[t]);
    }
    __syncthreads();
    int my_begin = INT32_MAX, my_end = 0;
    for (int64_t t = range.begin + threadIdx.x; t < range.end; t += blockDim.x)
        if (segments[t] >= in.lowest && segments[t] <= in.highest) {
            my_begin = my_begin < t ? my_begin : static_cast<int>(t);
            my_end = static_cast<int>(t) + 1;
        }
    atomicMin(&in.begin, my_begin);
    atomicMax(&in.end, my_end);
    __syncthreads();
    const token_range met = {in.begin, in.end};
    __syncthreads(); // all have read it
    return met;
}

// Tokens that `rows` tokens from `first` on may see, `before` and `after` them; it begins with a
// tile of so many `columns`.
template <typename T>
__device__ token_range range_of(const problem<T> &p, narrowing &in, int64_t b, int64_t first,
                                int rows, int columns, int before, int after)
{
    const int64_t begin = first - before, end = first + rows + after;
    token_range range = {begin > 0 ? begin : 0, end < p.T_ ? end : p.T_};
    range = narrowed(p, in, b, first, rows, range);
    range.begin = range.begin / columns * columns;
    return range;
}

// Keys that some of `rows` queries see, and queries that see some of `rows` keys.
template <typename T>
__device__ token_range keys_seen(const problem<T> &p, narrowing &in, int64_t b, int64_t first,
                                 int rows, int columns)
{
    return range_of(p, in, b, first, rows, columns, p.before, p.after);
}
template <typename T>
__device__ token_range queries_seeing(const problem<T> &p, narrowing &in, int64_t b, int64_t first,
                                      int rows, int columns)
{
    return range_of(p, in, b, first, rows, columns, p.after, p.before);
}

// `tile_rows`: of a block's tile.
template <typename T>
problem<T> problem_of(const mics_exec *at, const mics_cuda_attention *a, int64_t tile_rows)
{
    problem<T> p = {};
    p.qkv = static_cast<const T *>(a->qkv_N3C);
    p.y = static_cast<const T *>(a->y_NC);
    p.dy = static_cast<const T *>(a->dy_NC);
    p.y_out = static_cast<T *>(a->y_NC);
    p.dqkv = static_cast<T *>(a->dqkv_N3C);
    p.lse = a->lse_NH;
    p.delta = static_cast<float *>(at->workspace);
    p.T_ = a->T;
    p.H = a->heads.query;
    p.K = a->heads.key_value;
    p.D = a->heads.dim;
    p.shared = p.H / p.K;
    p.row = mics_heads_width(a->heads);
    const mics_op *op = a->call->shape.op;
    const bool windowed = op->window > 0 && mics_attention_reach(op) < a->T;
    p.before = windowed ? static_cast<int>(mics_attention_reach(op)) : INT32_MAX / 4;
    p.after = op->both_ways ? p.before : 0;
    p.window = static_cast<unsigned>(p.before) + static_cast<unsigned>(p.after) + 1;
    p.segments = a->call->segments;
    p.row_tiles = ceil_div(a->T, tile_rows);
    p.scale = 1.0F / sqrtf((float)p.D);
    const uintptr_t addresses =
        (uintptr_t)a->qkv_N3C | (uintptr_t)a->y_NC | (uintptr_t)a->dy_NC | (uintptr_t)a->dqkv_N3C;
    p.vectors = p.D % 8 == 0 && addresses % 16 == 0;
    return p;
}

// Blocks of a kernel: one a tile of each of `heads`.
template <typename T>
unsigned blocks_of(const problem<T> &p, const mics_cuda_attention *a, int64_t heads)
{
    return static_cast<unsigned>(p.row_tiles * a->B * heads);
}

} // namespace
