// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One attention as its kernels see it, on tensor cores and in fp32.
#ifndef MICS_OP_ATTENTION_PROBLEM_CUH
#define MICS_OP_ATTENTION_PROBLEM_CUH

#include "ops/attention/attention_cuda.h"
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
    unsigned window;     // keys that a query sees; more than T_ where there is none
    int64_t row_tiles;   // of one head
    float scale;         // 1 / sqrt(D)
    bool vectors;        // rows of heads begin on 16 bytes and are whole 16 bytes long
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
    return static_cast<unsigned>(distance) >= p.window;
}

// The first of the tiles of `columns` keys that the queries from `first` on see.
template <typename T>
__device__ __forceinline__ int64_t first_key(const problem<T> &p, int64_t first, int columns)
{
    const int64_t key = first - p.window + 1;
    return key > 0 ? key / columns * columns : 0;
}

// Behind the last query that sees some of `rows` keys from `first` on.
template <typename T>
__device__ __forceinline__ int64_t query_end(const problem<T> &p, int64_t first, int rows)
{
    const int64_t end = first + rows - 1 + p.window;
    return end < p.T_ ? end : p.T_;
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
    p.window = a->window > 0 && a->window < a->T ? static_cast<unsigned>(a->window) : INT32_MAX;
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

#endif
