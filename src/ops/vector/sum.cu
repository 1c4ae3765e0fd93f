// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums over shards. Bytes an element: sum_squares 4, read once by MICS_CUDA_SUM_BLOCKS blocks, each
// of which leaves a partial sum that one more block adds up; sum_blocks s (1 + count) and 4 (8 when
// it adds), sum_blocks_rounded s (2 + count), in one pass (map.cuh); sum_losses is one small block.
//
// Sums of squares and losses are fp64, which chips for training add half as fast as fp32: still 8
// times as fast as memory brings numbers. Which thread adds which numbers in which order follows
// from their count alone, not from where they lie or how many multiprocessors there are: no atomics.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"
#include "ops/common/team.cuh"

enum { SUM_THREADS = 256, SUM_PACK = 4, SUM_UNROLL = 4, FINAL_THREADS = 1024 };

// ---- squares and losses ----

template <bool ALIGNED, typename T>
static __device__ __forceinline__ mics_pack<T, SUM_PACK> load_four(const T *x)
{
    mics_pack<T, SUM_PACK> pack;
    if constexpr (ALIGNED) {
        pack = load_pack<SUM_PACK>(x);
    } else {
#pragma unroll
        for (int k = 0; k < SUM_PACK; ++k)
            pack.at[k] = x[k];
    }
    return pack;
}

template <typename T> static __device__ __forceinline__ double square(T x)
{
    const double wide = static_cast<double>(to_float(x));
    return wide * wide;
}

// partial[block] = squares of the packs that are this block's.
template <bool ALIGNED, typename T>
__global__ void __launch_bounds__(SUM_THREADS)
    squares_kernel(double *partial, const T *x, int64_t elems)
{
    __shared__ double shared[MAX_WARPS];
    const int64_t packs = elems / SUM_PACK, thread = grid_thread(), threads = grid_threads();
    double sum = 0;
    for (int64_t first = thread; first < packs; first += threads * SUM_UNROLL) {
        mics_pack<T, SUM_PACK> in[SUM_UNROLL];
#pragma unroll
        for (int u = 0; u < SUM_UNROLL; ++u)
            if (first + u * threads < packs)
                in[u] = load_four<ALIGNED>(x + (first + u * threads) * SUM_PACK);
#pragma unroll
        for (int u = 0; u < SUM_UNROLL; ++u)
            if (first + u * threads < packs)
                sum += (square(in[u].at[0]) + square(in[u].at[1])) +
                       (square(in[u].at[2]) + square(in[u].at[3]));
    }
    if (packs * SUM_PACK + thread < elems)
        sum += square(x[packs * SUM_PACK + thread]);
    sum = team_sum<SUM_THREADS>(sum, shared);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// *sum += the numbers, by one block.
template <typename V>
__global__ void __launch_bounds__(FINAL_THREADS)
    add_up_kernel(double *sum, const V *numbers, int64_t count)
{
    __shared__ double shared[MAX_WARPS];
    double mine = 0;
    for (int64_t i = threadIdx.x; i < count; i += FINAL_THREADS)
        mine += static_cast<double>(numbers[i]);
    mine = team_sum<FINAL_THREADS>(mine, shared);
    if (threadIdx.x == 0)
        *sum += mine;
}

void mics_cuda_sum_losses(const mics_exec *at, double *sum, const float *loss_N, int64_t N)
{
    MICS_LAUNCH(add_up_kernel<float>, 1, FINAL_THREADS, 0, stream_of(at), sum, loss_N, N);
}

template <typename T>
static void sum_squares(const mics_exec *at, double *sum, const void *numbers, int64_t elems)
{
    const T *x = static_cast<const T *>(numbers);
    const cudaStream_t stream = stream_of(at);
    double *partial = static_cast<double *>(at->workspace);
    const int64_t most = ceil_div(elems, SUM_PACK * SUM_THREADS);
    const int64_t blocks = most < 1                      ? 1
                           : most < MICS_CUDA_SUM_BLOCKS ? most
                                                         : int64_t{MICS_CUDA_SUM_BLOCKS};
    if (packs_fit<T, SUM_PACK>(x, 0))
        MICS_LAUNCH((squares_kernel<true, T>), static_cast<unsigned>(blocks), SUM_THREADS, 0,
                    stream, partial, x, elems);
    else
        MICS_LAUNCH((squares_kernel<false, T>), static_cast<unsigned>(blocks), SUM_THREADS, 0,
                    stream, partial, x, elems);
    MICS_LAUNCH(add_up_kernel<double>, 1, FINAL_THREADS, 0, stream, sum,
                static_cast<const double *>(partial), blocks);
}

void mics_cuda_sum_squares(const mics_exec *at, double *sum, const float *x, int64_t elems)
{
    sum_squares<float>(at, sum, x, elems);
}

void mics_cuda_sum_squares_rounded(const mics_exec *at, double *sum, const void *x, int64_t elems)
{
    MICS_BY_DTYPE(at->dtype, sum_squares, at, sum, x, elems);
}

// ---- blocks of other ranks ----

// out[i] (+)= own[i] + blocks[0][i] + ..., with Out float or T. `add` is for float.
template <typename Out, typename T, bool ADD> struct blocks_op {
    // The wider side goes in 16 bytes.
    static const int PACK = sizeof(Out) == 4 ? 4 : 16 / sizeof(T), UNROLL = 2;
    Out *out;
    const T *own, *blocks;
    int64_t stride;
    int32_t count;

    template <int COUNT> struct input {
        mics_pack<T, COUNT> own;
        mics_pack<Out, COUNT> before;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.own = load_pack<COUNT>(own + i);
        if (ADD)
            in.before = load_pack<COUNT>(static_cast<const Out *>(out) + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        float sum[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            sum[k] = to_float(in.own.at[k]);
#pragma unroll 4
        for (int32_t block = 0; block < count; ++block) {
            const mics_pack<T, COUNT> other = load_pack<COUNT>(blocks + block * stride + i);
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                sum[k] += to_float(other.at[k]);
        }
        mics_pack<Out, COUNT> to;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            to.at[k] = from_float<Out>(ADD ? to_float(in.before.at[k]) + sum[k] : sum[k]);
        store_pack<COUNT>(out + i, to);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<Out, PACK>(out + i, 0) && packs_fit<T, PACK>(own + i, 0) &&
               (count == 0 || (packs_fit<T, PACK>(blocks + i, 0) && stride % PACK == 0));
    }
};

// The arguments of both entries.
struct blocks_call {
    void *out;
    const void *own, *blocks;
    int32_t count;
    int64_t stride, elems;
    bool add;
};

template <typename Out, typename T, bool ADD>
static void sum_into(const mics_exec *at, const blocks_call &c)
{
    map(at,
        blocks_op<Out, T, ADD>{static_cast<Out *>(c.out), static_cast<const T *>(c.own),
                               static_cast<const T *>(c.blocks), c.stride, c.count},
        c.elems);
}

template <typename T> static void sum_to_float(const mics_exec *at, const blocks_call &c)
{
    if (c.add)
        sum_into<float, T, true>(at, c);
    else
        sum_into<float, T, false>(at, c);
}

template <typename T> static void sum_to_same(const mics_exec *at, const blocks_call &c)
{
    sum_into<T, T, false>(at, c);
}

void mics_cuda_sum_blocks(const mics_exec *at, float *sum, const void *own, const void *blocks,
                          int32_t count, int64_t stride, int64_t elems, bool add)
{
    const blocks_call c = {sum, own, blocks, count, stride, elems, add};
    MICS_BY_DTYPE(at->dtype, sum_to_float, at, c);
}

void mics_cuda_sum_blocks_rounded(const mics_exec *at, void *out, const void *own,
                                  const void *blocks, int32_t count, int64_t stride, int64_t elems)
{
    const blocks_call c = {out, own, blocks, count, stride, elems, false};
    MICS_BY_DTYPE(at->dtype, sum_to_same, at, c);
}
