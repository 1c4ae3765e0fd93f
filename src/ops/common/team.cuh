// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums over teams: the threads of a block in groups of TEAM, which is 32 or a multiple of it and
// divides the block. The order of a sum is fixed by TEAM alone, and all threads of a team get the
// same bits. All threads of the block call together.
#pragma once

#include <cuda_runtime.h>

enum { WARP = 32, MAX_WARPS = 32 };

template <typename V> static __device__ __forceinline__ V warp_sum(V x)
{
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x += __shfl_xor_sync(0xffffffffU, x, distance);
    return x;
}

static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffU, x, distance));
    return x;
}

// shared: MAX_WARPS values of the block, used for nothing else.
template <int TEAM, typename V> static __device__ __forceinline__ V team_sum(V x, V *shared)
{
    x = warp_sum(x);
    if constexpr (TEAM > WARP) {
        const int warp = static_cast<int>(threadIdx.x) / WARP;
        const int first = warp / (TEAM / WARP) * (TEAM / WARP);
        __syncthreads(); // the sums before have been read
        if (threadIdx.x % WARP == 0)
            shared[warp] = x;
        __syncthreads();
        x = shared[first];
#pragma unroll
        for (int i = 1; i < TEAM / WARP; ++i)
            x += shared[first + i];
    }
    return x;
}

// Two sums for the price of one. shared: MAX_WARPS pairs.
template <int TEAM>
static __device__ __forceinline__ float2 team_sum2(float a, float b, float2 *shared)
{
    float2 sum = make_float2(warp_sum(a), warp_sum(b));
    if constexpr (TEAM > WARP) {
        const int warp = static_cast<int>(threadIdx.x) / WARP;
        const int first = warp / (TEAM / WARP) * (TEAM / WARP);
        __syncthreads();
        if (threadIdx.x % WARP == 0)
            shared[warp] = sum;
        __syncthreads();
        sum = shared[first];
#pragma unroll
        for (int i = 1; i < TEAM / WARP; ++i) {
            sum.x += shared[first + i].x;
            sum.y += shared[first + i].y;
        }
    }
    return sum;
}

// What the threads of a block before this one have, and in *total_out what all have. shared:
// MAX_WARPS values. THREADS: of the block. All threads of the block call together.
template <int THREADS>
static __device__ __forceinline__ int block_sum_before(int x, int *shared, int *total_out)
{
    const int lane = static_cast<int>(threadIdx.x) % WARP;
    const int warp = static_cast<int>(threadIdx.x) / WARP;
    int sum = x;
#pragma unroll
    for (int distance = 1; distance < WARP; distance *= 2) {
        const int other = __shfl_up_sync(0xffffffffU, sum, distance);
        sum += lane >= distance ? other : 0;
    }
    __syncthreads(); // the sums before have been read
    if (lane == WARP - 1)
        shared[warp] = sum;
    __syncthreads();
    int before = 0, total = 0;
#pragma unroll
    for (int i = 0; i < THREADS / WARP; ++i) {
        before += i < warp ? shared[i] : 0;
        total += shared[i];
    }
    *total_out = total;
    return before + sum - x;
}
