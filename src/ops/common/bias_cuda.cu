// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adding a bias to rows, and summing rows to its gradient, for the GEMMs whose library has no
// epilogue for it, and for micro-steps that add to what the ones before left.
//
// Floors: bias_add reads and writes N O numbers; bias_backward reads N O and its partial sums are a
// few rows; round_add reads 4 bytes and writes one number (reads it too when it adds). Numbers go
// in packs of 16 bytes where rows are whole packs.
#include "ops/common/bias_cuda.h"
#include "ops/common/map.cuh"
#include "ops/linear/def.h"

namespace
{

constexpr int LANES = 32, ROWS = 8; // of a block of threads that sums
constexpr int ADD_THREADS = 256;

// Rows are summed in at most so many blocks: enough to fill a large GPU at a few thousand columns.
int64_t row_blocks(int64_t N)
{
    const int64_t most = MICS_LINEAR_ACCELERATOR_BLOCKS, blocks = ceil_div(N, most);
    return blocks < most ? blocks : most;
}

// A block a row.
template <typename T, int COUNT>
__global__ void __launch_bounds__(ADD_THREADS)
    bias_add(T *y_NO, const T *bias_O, int64_t N, int64_t O, int64_t stride)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x)
        for (int64_t o = (int64_t)threadIdx.x * COUNT; o < O; o += ADD_THREADS * COUNT) {
            mics_pack<T, COUNT> y = load_pack<COUNT>((const T *)y_NO + n * stride + o);
            const mics_pack<T, COUNT> bias = load_pack<COUNT>(bias_O + o);
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                y.at[k] = from_float<T>(to_float(y.at[k]) + to_float(bias.at[k]));
            store_pack<COUNT>(y_NO + n * stride + o, y);
        }
}

// sums (blocks, O): block blockIdx.y has rows [y N / blocks, (y + 1) N / blocks). Eight rows of
// threads each walk over every eighth row, COUNT columns a thread; their sums are added in order.
template <typename T, int COUNT>
__global__ void __launch_bounds__(LANES *ROWS)
    sum_rows(float *sums, const T *dy_NO, int64_t N, int64_t O, int64_t stride, int64_t blocks)
{
    __shared__ float partial[ROWS][COUNT][LANES];
    const int64_t column = ((int64_t)blockIdx.x * LANES + threadIdx.x) * COUNT;
    const int64_t end = (blockIdx.y + 1) * N / blocks;
    float sum[COUNT] = {};
    if (column < O)
#pragma unroll 4
        for (int64_t n = blockIdx.y * N / blocks + threadIdx.y; n < end; n += ROWS) {
            const mics_pack<T, COUNT> dy = load_pack<COUNT>(dy_NO + n * stride + column);
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                sum[k] += to_float(dy.at[k]);
        }
#pragma unroll
    for (int k = 0; k < COUNT; ++k)
        partial[threadIdx.y][k][threadIdx.x] = sum[k];
    __syncthreads();
    if (threadIdx.y != 0 || column >= O)
        return;
    for (int row = 1; row < ROWS; ++row)
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            sum[k] += partial[row][k][threadIdx.x];
    store_floats(sums + blockIdx.y * O + column, sum);
}

template <typename T>
__global__ void sum_blocks_of_rows(T *dbias_O, const float *sums, int64_t O, int64_t blocks,
                                   bool add)
{
    const int64_t column = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= O)
        return;
    float sum = 0;
    for (int64_t block = 0; block < blocks; ++block)
        sum += sums[block * O + column];
    dbias_O[column] = from_float<T>(add ? to_float(dbias_O[column]) + sum : sum);
}

template <typename T, bool ADD> struct round_op {
    static const int PACK = 4, UNROLL = 4; // the fp32 side goes in 16 bytes
    T *out;
    const float *sum;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> sum;
        mics_pack<T, COUNT> out;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.sum = load_pack<COUNT>(sum + i);
        if (ADD)
            in.out = load_pack<COUNT>(static_cast<const T *>(out) + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<T, COUNT> to;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            to.at[k] = from_float<T>(ADD ? to_float(in.out.at[k]) + in.sum.at[k] : in.sum.at[k]);
        store_pack<COUNT>(out + i, to);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(out + i, 0) && packs_fit<float, PACK>(sum + i, 0);
    }
};

template <typename T, int COUNT>
void add_packs(const mics_exec *at, void *y, const void *bias, int64_t N, int64_t O, int64_t stride)
{
    MICS_LAUNCH((bias_add<T, COUNT>), grid_of(N, 1), ADD_THREADS, 0, stream_of(at),
                static_cast<T *>(y), static_cast<const T *>(bias), N, O, stride);
}

template <typename T>
void add_to(const mics_exec *at, void *y, const void *bias, int64_t N, int64_t O, int64_t stride)
{
    constexpr int PACK = 16 / sizeof(T);
    if (packs_fit<T, PACK>(y, O) && packs_fit<T, PACK>(y, stride) && packs_fit<T, PACK>(bias, O))
        add_packs<T, PACK>(at, y, bias, N, O, stride);
    else
        add_packs<T, 1>(at, y, bias, N, O, stride);
}

template <typename T, int COUNT>
void sum_packs(const mics_exec *at, float *sums, const T *dy, int64_t N, int64_t O, int64_t stride)
{
    const int64_t blocks = row_blocks(N);
    const dim3 grid((unsigned)ceil_div(O, LANES * COUNT), (unsigned)blocks);
    MICS_LAUNCH((sum_rows<T, COUNT>), grid, dim3(LANES, ROWS), 0, stream_of(at), sums, dy, N, O,
                stride, blocks);
}

// T: of dy; D: of the bias's gradient.
template <typename T, typename D>
void backward_into(const mics_exec *at, void *dbias, const void *dy, int64_t N, int64_t O,
                   int64_t stride, bool add, float *sums)
{
    constexpr int PACK = 16 / sizeof(T);
    const T *from = static_cast<const T *>(dy);
    if (packs_fit<T, PACK>(dy, O) && packs_fit<T, PACK>(dy, stride))
        sum_packs<T, PACK>(at, sums, from, N, O, stride);
    else
        sum_packs<T, 1>(at, sums, from, N, O, stride);
    MICS_LAUNCH((sum_blocks_of_rows<D>), (unsigned)ceil_div(O, 128), 128, 0, stream_of(at),
                static_cast<D *>(dbias), sums, O, row_blocks(N), add);
}

template <typename T>
void backward(const mics_exec *at, void *dbias, const void *dy, int64_t N, int64_t O,
              int64_t stride, bool add, float *sums)
{
    backward_into<T, T>(at, dbias, dy, N, O, stride, add, sums);
}

template <typename T>
void sum_wide(const mics_exec *at, float *sum, const void *dy, int64_t N, int64_t O, int64_t stride,
              bool add, float *sums)
{
    backward_into<T, float>(at, sum, dy, N, O, stride, add, sums);
}

template <typename T>
void round_to(const mics_exec *at, void *out, const float *sum, int64_t elems, bool add)
{
    if (add)
        map(at, round_op<T, true>{static_cast<T *>(out), sum}, elems);
    else
        map(at, round_op<T, false>{static_cast<T *>(out), sum}, elems);
}

} // namespace

void mics_cuda_bias_add(const mics_exec *at, void *y_NO, const void *bias_O, int64_t N, int64_t O,
                        int64_t stride)
{
    MICS_BY_DTYPE(at->dtype, add_to, at, y_NO, bias_O, N, O, stride);
}

void mics_cuda_bias_backward(const mics_exec *at, void *dbias_O, const void *dy_NO, int64_t N,
                             int64_t O, int64_t stride, bool add, void *workspace)
{
    MICS_BY_DTYPE(at->dtype, backward, at, dbias_O, dy_NO, N, O, stride, add,
                  static_cast<float *>(workspace));
}

void mics_cuda_bias_sum(const mics_exec *at, float *sum_O, const void *dy_NO, int64_t N, int64_t O,
                        int64_t stride, bool add, void *workspace)
{
    MICS_BY_DTYPE(at->dtype, sum_wide, at, sum_O, dy_NO, N, O, stride, add,
                  static_cast<float *>(workspace));
}

void mics_cuda_round_add(const mics_exec *at, void *out, const float *sum, int64_t elems, bool add)
{
    MICS_BY_DTYPE(at->dtype, round_to, at, out, sum, elems, add);
}
