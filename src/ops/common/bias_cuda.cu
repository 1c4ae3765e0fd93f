// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Adding a bias to rows, and summing rows to its gradient, for the products whose library has no
// epilogue for it.
//
// Floors: bias_add reads and writes N O numbers; bias_backward reads N O and its partial sums are a
// few rows; round_add reads 4 bytes and writes one number (reads it too when it adds).
#include "ops/common/bias_cuda.h"
#include "ops/common/launch.cuh"
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace
{

// Rows are summed in at most so many blocks, whatever their number: enough to fill a large GPU at a
// few thousand columns.
constexpr int64_t MAX_BLOCKS = 64;
constexpr int COLUMNS = 32, ROWS = 8; // of a block of threads

int64_t row_blocks(int64_t N)
{
    const int64_t blocks = (N + 8 * ROWS - 1) / (8 * ROWS);
    return blocks < MAX_BLOCKS ? blocks : MAX_BLOCKS;
}

template <typename T> __global__ void bias_add(T *y_NO, const T *bias_O, int64_t elems, int64_t O)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < elems; i += step)
        y_NO[i] = T(float(y_NO[i]) + float(bias_O[i % O]));
}

// sums (blocks, O): block blockIdx.y has rows [y N / blocks, (y + 1) N / blocks). Eight rows of
// threads each walk over every eighth row; their sums are added in order.
template <typename T>
__global__ void sum_rows(float *sums, const T *dy_NO, int64_t N, int64_t O, int64_t blocks)
{
    __shared__ float partial[ROWS][COLUMNS];
    const int64_t column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x;
    const int64_t end = (blockIdx.y + 1) * N / blocks;
    float sum = 0;
    if (column < O)
        for (int64_t n = blockIdx.y * N / blocks + threadIdx.y; n < end; n += ROWS)
            sum += float(dy_NO[n * O + column]);
    partial[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= O)
        return;
    for (int row = 1; row < ROWS; ++row)
        sum += partial[row][threadIdx.x];
    sums[blockIdx.y * O + column] = sum;
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
    dbias_O[column] = T(add ? float(dbias_O[column]) + sum : sum);
}

template <typename T> __global__ void round_add(T *out, const float *sum, int64_t elems, bool add)
{
    const int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < elems; i += step)
        out[i] = T(add ? float(out[i]) + sum[i] : sum[i]);
}

cudaStream_t stream_of(const mics_op_place *at)
{
    return static_cast<cudaStream_t>(at->device->ops->stream_handle(at->device->ctx, at->stream));
}

unsigned blocks_for(int64_t elems)
{
    const int64_t blocks = (elems + 255) / 256;
    return (unsigned)(blocks < 8192 ? blocks : 8192);
}

template <typename T>
void add_to(const mics_op_place *at, void *y, const void *bias, int64_t N, int64_t O)
{
    MICS_LAUNCH((bias_add<T>), blocks_for(N * O), 256, 0, stream_of(at), static_cast<T *>(y),
                static_cast<const T *>(bias), N * O, O);
}

template <typename T>
void backward(const mics_op_place *at, void *dbias, const void *dy, int64_t N, int64_t O, bool add,
              float *sums)
{
    const int64_t blocks = row_blocks(N);
    const dim3 grid((unsigned)((O + COLUMNS - 1) / COLUMNS), (unsigned)blocks);
    MICS_LAUNCH((sum_rows<T>), grid, dim3(COLUMNS, ROWS), 0, stream_of(at), sums,
                static_cast<const T *>(dy), N, O, blocks);
    MICS_LAUNCH((sum_blocks_of_rows<T>), (unsigned)((O + 127) / 128), 128, 0, stream_of(at),
                static_cast<T *>(dbias), sums, O, blocks, add);
}

template <typename T>
void round_to(const mics_op_place *at, void *out, const float *sum, int64_t elems, bool add)
{
    MICS_LAUNCH((round_add<T>), blocks_for(elems), 256, 0, stream_of(at), static_cast<T *>(out),
                sum, elems, add);
}

} // namespace

size_t mics_cuda_bias_workspace_bytes(int64_t N, int64_t O)
{
    return (size_t)(row_blocks(N) * O) * sizeof(float);
}

void mics_cuda_bias_add(const mics_op_place *at, void *y_NO, const void *bias_O, int64_t N,
                        int64_t O)
{
    if (at->dtype == MICS_DTYPE_FP32)
        add_to<float>(at, y_NO, bias_O, N, O);
    else if (at->dtype == MICS_DTYPE_BF16)
        add_to<__nv_bfloat16>(at, y_NO, bias_O, N, O);
    else
        add_to<__half>(at, y_NO, bias_O, N, O);
}

void mics_cuda_bias_backward(const mics_op_place *at, void *dbias_O, const void *dy_NO, int64_t N,
                             int64_t O, bool add, void *workspace)
{
    float *sums = static_cast<float *>(workspace);
    if (at->dtype == MICS_DTYPE_FP32)
        backward<float>(at, dbias_O, dy_NO, N, O, add, sums);
    else if (at->dtype == MICS_DTYPE_BF16)
        backward<__nv_bfloat16>(at, dbias_O, dy_NO, N, O, add, sums);
    else
        backward<__half>(at, dbias_O, dy_NO, N, O, add, sums);
}

void mics_cuda_round_add(const mics_op_place *at, void *out, const float *sum, int64_t elems,
                         bool add)
{
    if (at->dtype == MICS_DTYPE_FP32)
        round_to<float>(at, out, sum, elems, add);
    else if (at->dtype == MICS_DTYPE_BF16)
        round_to<__nv_bfloat16>(at, out, sum, elems, add);
    else
        round_to<__half>(at, out, sum, elems, add);
}
