// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Softmax and cross-entropy of rows of logits, loss and gradient in one kernel. Bytes: s R V read,
// and s R V written where gradients are wanted.
//
// A team takes a row: a warp where it is short, else a block. Each thread keeps a running maximum
// of its numbers and the sum of their exponentials relative to it (Milakov and Gimelshein, 2018,
// arXiv:1805.02867), so that the row is read from memory once; the gradient reads it again, from
// the chip's second cache: the rows that are under way at a time, some 400 of 100 KB on the largest
// chips, nearly fit there. A thread's sum is fp32 over V / TEAM numbers, teams' sums follow a tree.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include <float.h>

enum { ROW_THREADS = 512, SHORT_ROW = 1024 };

// The highest of some numbers, and the sum of e^(number - highest).
struct softmax_sum {
    float highest, sum;
};

template <typename T>
static __device__ __forceinline__ softmax_sum join(softmax_sum a, softmax_sum b)
{
    const float highest = fmaxf(a.highest, b.highest);
    return {highest, a.sum * mics_quick<T>::exp(a.highest - highest) +
                         b.sum * mics_quick<T>::exp(b.highest - highest)};
}

template <typename T, int COUNT>
static __device__ __forceinline__ softmax_sum join_pack(softmax_sum a,
                                                        const mics_pack<T, COUNT> &pack)
{
    float highest = a.highest;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        highest = fmaxf(highest, to_float(pack.at[k]));
    if (highest > a.highest) { // seldom, after a while
        a.sum *= mics_quick<T>::exp(a.highest - highest);
        a.highest = highest;
    }
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        a.sum += mics_quick<T>::exp(to_float(pack.at[k]) - a.highest);
    return a;
}

// shared: MAX_WARPS of the block.
template <typename T, int TEAM>
static __device__ __forceinline__ softmax_sum join_team(softmax_sum mine, softmax_sum *shared)
{
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        softmax_sum other;
        other.highest = __shfl_xor_sync(0xffffffffU, mine.highest, distance);
        other.sum = __shfl_xor_sync(0xffffffffU, mine.sum, distance);
        mine = join<T>(mine, other);
    }
    if constexpr (TEAM > WARP) {
        __syncthreads(); // the row before has been read
        if (threadIdx.x % WARP == 0)
            shared[threadIdx.x / WARP] = mine;
        __syncthreads();
        mine = shared[0];
        for (int i = 1; i < TEAM / WARP; ++i)
            mine = join<T>(mine, shared[i]);
    }
    return mine;
}

// scale * (softmax - [v = target]) of one logit.
template <typename T>
static __device__ __forceinline__ float slope(float logit, bool target, softmax_sum row,
                                              float factor, float scale)
{
    const float from = mics_quick<T>::exp(logit - row.highest) * factor;
    return target ? from - scale : from;
}

template <typename T, typename G, int COUNT>
static __device__ __forceinline__ void put_slopes(G *gradients, const T *logits, int64_t v,
                                                  int64_t target, softmax_sum row, float factor,
                                                  float scale)
{
    const mics_pack<T, COUNT> in = load_pack<COUNT>(logits + v);
    mics_pack<G, COUNT> out;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        out.at[k] =
            from_float<G>(slope<T>(to_float(in.at[k]), v + k == target, row, factor, scale));
    store_pack<COUNT>(gradients + v, out);
}

// The gradients of a row that does not count.
template <typename G, int COUNT, int TEAM>
static __device__ __forceinline__ void clear_row(G *gradients, int64_t V, int64_t member)
{
    const int64_t packs = V / COUNT, last = packs * COUNT + member;
    mics_pack<G, COUNT> zeros;
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        zeros.at[k] = from_float<G>(0.0F);
    for (int64_t i = member; i < packs; i += TEAM)
        store_pack<COUNT>(gradients + i * COUNT, zeros);
    if (last < V)
        gradients[last] = zeros.at[0];
}

// A row, by a team whose thread number `member` this is. A team without a row (r >= R), or with one
// that does not count, comes to the barriers.
template <typename T, typename G, int COUNT, int TEAM>
static __device__ __forceinline__ void entropy_row(const mics_cuda_logits &a, int64_t r,
                                                   softmax_sum *shared)
{
    const int64_t of = r < a.R && a.rows ? a.rows[r] : r;
    const bool counts = r < a.R && a.targets[of] >= 0;
    const int64_t member = threadIdx.x % TEAM, packs = counts ? a.V / COUNT : 0;
    const int64_t end = counts ? a.V : 0, last = packs * COUNT + member;
    const T *logits = static_cast<const T *>(a.logits) + r * a.stride;
    softmax_sum row = {-FLT_MAX, 0};
#pragma unroll 4
    for (int64_t i = member; i < packs; i += TEAM)
        row = join_pack<T, COUNT>(row, load_pack<COUNT>(logits + i * COUNT));
    if (last < end)
        row = join_pack<T, 1>(row, load_pack<1>(logits + last));
    row = join_team<T, TEAM>(row, shared);
    const int64_t target = counts ? a.targets[of] : 0;
    if (member == 0 && r < a.R)
        a.loss[of] = counts ? logf(row.sum) - (to_float(logits[target]) - row.highest) : 0.0F;
    if (!a.gradients)
        return;
    if constexpr (TEAM > WARP)
        __syncthreads(); // the target's logit has been read; it may be overwritten
    else
        __syncwarp();
    G *gradients = static_cast<G *>(a.gradients) + r * a.stride;
    if (r < a.R && !counts)
        clear_row<G, COUNT, TEAM>(gradients, a.V, member);
    const float scale = a.scale * (counts && a.row_scales ? a.row_scales[of] : 1);
    const float factor = scale / row.sum;
#pragma unroll 2
    for (int64_t i = member; i < packs; i += TEAM)
        put_slopes<T, G, COUNT>(gradients, logits, i * COUNT, target, row, factor, scale);
    if (last < end)
        put_slopes<T, G, 1>(gradients, logits, last, target, row, factor, scale);
}

template <typename T, typename G, int COUNT, int TEAM>
__global__ void __launch_bounds__(ROW_THREADS) entropy_kernel(mics_cuda_logits a)
{
    __shared__ softmax_sum shared[MAX_WARPS];
    const int64_t TEAMS = ROW_THREADS / TEAM, team = threadIdx.x / TEAM;
    for (int64_t first = blockIdx.x * TEAMS; first < a.R; first += gridDim.x * TEAMS)
        entropy_row<T, G, COUNT, TEAM>(a, first + team, shared);
}

template <typename T, typename G, int COUNT>
static void entropy_packs(const mics_exec *at, const mics_cuda_logits &a)
{
    const cudaStream_t stream = stream_of(at);
    if (a.V <= SHORT_ROW)
        MICS_LAUNCH((entropy_kernel<T, G, COUNT, WARP>), grid_of(a.R, ROW_THREADS / WARP),
                    ROW_THREADS, 0, stream, a);
    else
        MICS_LAUNCH((entropy_kernel<T, G, COUNT, ROW_THREADS>), grid_of(a.R, 1), ROW_THREADS, 0,
                    stream, a);
}

template <typename T, typename G>
static void entropy(const mics_exec *at, const mics_cuda_logits &a)
{
    const int PACK = 16 / sizeof(T);
    if (packs_fit<T, PACK>(a.logits, a.stride) &&
        (!a.gradients || packs_fit<G, PACK>(a.gradients, a.stride)))
        entropy_packs<T, G, PACK>(at, a);
    else
        entropy_packs<T, G, 1>(at, a);
}

template <typename G> static void entropy_of_float(const mics_exec *at, const mics_cuda_logits &a)
{
    entropy<float, G>(at, a);
}

template <typename T> static void entropy_of_same(const mics_exec *at, const mics_cuda_logits &a)
{
    entropy<T, T>(at, a);
}

void mics_cuda_cross_entropy(const mics_exec *at, const mics_cuda_logits *logits)
{
    if (logits->logits_dtype == MICS_DTYPE_FP32)
        MICS_BY_DTYPE(at->dtype, entropy_of_float, at, *logits);
    else
        MICS_BY_DTYPE(logits->logits_dtype, entropy_of_same, at, *logits);
}
