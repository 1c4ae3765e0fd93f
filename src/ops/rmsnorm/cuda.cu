// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows scaled by their root mean square, and gradients. Shapes: see mics/op.h.
//
// A block takes a row; its threads read neighbouring numbers. Bytes: forward 2 s N C (x a second time from the chip's
// cache), backward 3 s N C (4 s N C when it adds), and once more dy and x for the weight: its gradient is summed by
// columns over at most MICS_RMSNORM_ACCELERATOR_BLOCKS fixed blocks of rows, whose sums a second kernel adds in order.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"
#include "ops/rmsnorm/def.h"

enum { ROW_THREADS = 256 };

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_forward(T *y_NC, float *scale_N, const T *x_NC, const T *weight_C, float eps, int64_t N,
                    int64_t C)
{
    __shared__ float shared[MOST_WARPS];
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const T *x_C = x_NC + n * C;
        float squares = 0;
        for (int64_t c = threadIdx.x; c < C; c += ROW_THREADS)
            squares += to_float(x_C[c]) * to_float(x_C[c]);
        squares = team_sum<ROW_THREADS>(squares, shared);
        const float scale = 1.0F / sqrtf(squares / static_cast<float>(C) + eps);
        for (int64_t c = threadIdx.x; c < C; c += ROW_THREADS)
            y_NC[n * C + c] = from_float<T>(to_float(x_C[c]) * scale * to_float(weight_C[c]));
        if (threadIdx.x == 0)
            scale_N[n] = scale;
    }
}

// With normal = x scale and g = dy weight: dx = scale (g - normal * mean of (g normal)). dx may be dy.
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_rows(T *dx_NC, const T *dy_NC, const T *x_NC, const float *scale_N, const T *weight_C,
                 int64_t N, int64_t C, bool add)
{
    __shared__ float shared[MOST_WARPS];
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const int64_t row = n * C;
        const float scale = scale_N[n];
        float sum = 0;
        for (int64_t c = threadIdx.x; c < C; c += ROW_THREADS)
            sum += to_float(dy_NC[row + c]) * to_float(weight_C[c]) *
                   (to_float(x_NC[row + c]) * scale);
        const float mean = team_sum<ROW_THREADS>(sum, shared) / static_cast<float>(C);
        for (int64_t c = threadIdx.x; c < C; c += ROW_THREADS) {
            const float g = to_float(dy_NC[row + c]) * to_float(weight_C[c]);
            const float d = (g - to_float(x_NC[row + c]) * scale * mean) * scale;
            dx_NC[row + c] = from_float<T>(add ? to_float(dx_NC[row + c]) + d : d);
        }
    }
}

// One block of rows and ROW_THREADS columns: partial (blocks, C).
template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_columns(float *partial, const T *dy_NC, const T *x_NC, const float *scale_N, int64_t N,
                    int64_t C, int64_t blocks)
{
    const int64_t c = static_cast<int64_t>(blockIdx.x) * ROW_THREADS + threadIdx.x;
    const int64_t block = blockIdx.y;
    if (c >= C)
        return;
    float sum = 0;
    for (int64_t n = block * N / blocks; n < (block + 1) * N / blocks; ++n)
        sum += to_float(dy_NC[n * C + c]) * (to_float(x_NC[n * C + c]) * scale_N[n]);
    partial[block * C + c] = sum;
}

template <typename T>
__global__ void __launch_bounds__(ROW_THREADS)
    rmsnorm_blocks(T *dweight_C, const float *partial, int64_t C, int64_t blocks, bool add)
{
    const int64_t c = static_cast<int64_t>(blockIdx.x) * ROW_THREADS + threadIdx.x;
    if (c >= C)
        return;
    float sum = add ? to_float(dweight_C[c]) : 0.0F;
    for (int64_t block = 0; block < blocks; ++block)
        sum += partial[block * C + c];
    dweight_C[c] = from_float<T>(sum);
}

template <typename T> static void forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N;
    MICS_LAUNCH(rmsnorm_forward<T>, grid_of(N, 1), ROW_THREADS, 0, stream_of(call->at),
                static_cast<T *>(call->out), call->stats, static_cast<const T *>(call->in[0]),
                static_cast<const T *>(call->params[0]), call->shape.op->eps, N, call->shape.out);
}

// The weight's gradient comes first: dx may come to lie over dy.
template <typename T> static void backward(const mics_op_call *call)
{
    const int64_t N = call->shape.N, C = call->shape.out;
    const int64_t most = MICS_RMSNORM_ACCELERATOR_BLOCKS, blocks = N < most ? N : most;
    const T *dy = static_cast<const T *>(call->dout), *x = static_cast<const T *>(call->in[0]);
    float *partial = static_cast<float *>(call->at->workspace);
    const cudaStream_t stream = stream_of(call->at);
    const unsigned columns = static_cast<unsigned>(ceil_div(C, ROW_THREADS));
    MICS_LAUNCH(rmsnorm_columns<T>, dim3(columns, static_cast<unsigned>(blocks)), ROW_THREADS, 0,
                stream, partial, dy, x, call->stats, N, C, blocks);
    MICS_LAUNCH(rmsnorm_blocks<T>, columns, ROW_THREADS, 0, stream,
                static_cast<T *>(call->dparams[0]), partial, C, blocks, call->add_params[0]);
    MICS_LAUNCH(rmsnorm_rows<T>, grid_of(N, 1), ROW_THREADS, 0, stream, static_cast<T *>(call->din),
                dy, x, call->stats, static_cast<const T *>(call->params[0]), N, C, call->add_din);
}

static void run_forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, forward, call);
}

static void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, backward, call);
}

static size_t workspace_bytes(const mics_op_shape *shape, mics_dtype)
{
    const int64_t most = MICS_RMSNORM_ACCELERATOR_BLOCKS;
    return static_cast<size_t>(shape->out * (shape->N < most ? shape->N : most)) * sizeof(float);
}

const mics_op_kernels mics_cuda_rmsnorm_kernels = {run_forward, run_backward, nullptr,
                                                   workspace_bytes, nullptr};
