// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm of each query and key head on a GPU; values pass. Legend: D numbers of a head, W = (Q + 2
// K) D of a token, heads Q + K that are normed.
//
// Forward: a warp a head, which it reads twice, the second time from the chip's cache. Bytes: 2 s N
// W.
//
// Backward in two kernels, since dx may lie where dy does: first the sums of the weights' gradients,
// a thread a column, over a number of blocks that the shape alone fixes; then dx, a warp a head. A
// third kernel adds the blocks' sums in order. Bytes: 5 s N W (6 s N W when it adds), of which dy
// and x come twice.
#include "ops/common/cuda_ops.h"
#include "ops/common/def.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / WARP, COLUMN_ROWS = 8;

template <typename T> struct norm {
    const T *x, *dy, *weight[2]; // of queries, of keys
    T *y, *dx, *dweight[2];      // gradients: NULL where they are not wanted
    float *scales;               // (N, Q + K)
    float *partial;              // (blocks, 2, D)
    float eps;
    int64_t N, W, D, queries, heads;
    bool add_dx, add_weight[2];
    __device__ int64_t head_at(int64_t head) const // where head number `head` of all begins
    {
        return head / heads * W + head % heads * D;
    }
    __device__ int of_keys(int64_t head) const
    {
        return head % heads < queries ? 0 : 1;
    }
};

// Values: what is beside the heads of a token.
template <typename T>
__device__ __forceinline__ void pass_values(T *to, const T *from, const norm<T> &a, bool add)
{
    const int64_t begin = a.heads * a.D, count = a.W - begin;
    for (int64_t n = blockIdx.x; n < a.N; n += gridDim.x)
        for (int64_t i = threadIdx.x; i < count; i += THREADS) {
            const int64_t at = n * a.W + begin + i;
            to[at] = add ? from_float<T>(to_float(to[at]) + to_float(from[at])) : from[at];
        }
}

template <typename T> __global__ void __launch_bounds__(THREADS) head_norm_forward(norm<T> a)
{
    const int64_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64_t head = blockIdx.x * WARPS + warp; head < a.N * a.heads;
         head += (int64_t)gridDim.x * WARPS) {
        const T *x = a.x + a.head_at(head), *weight = a.weight[a.of_keys(head)];
        T *y = a.y + a.head_at(head);
        float squares = 0;
        for (int64_t d = lane; d < a.D; d += WARP)
            squares += to_float(x[d]) * to_float(x[d]);
        const float scale = 1.0F / sqrtf(warp_sum(squares) / static_cast<float>(a.D) + a.eps);
        for (int64_t d = lane; d < a.D; d += WARP)
            y[d] = from_float<T>(to_float(x[d]) * scale * to_float(weight[d]));
        if (lane == 0)
            a.scales[head] = scale;
    }
    pass_values(a.y, a.x, a, false);
}

// Sums of dy * normal of 32 columns, blockIdx.z those of queries or of keys, over every gridDim.y-th
// token: a warp of COLUMN_ROWS adds every such head of a token, and the first warp adds the others'
// sums.
template <typename T>
__global__ void __launch_bounds__(COLUMN_ROWS *WARP) head_norm_columns(norm<T> a)
{
    __shared__ float shared[COLUMN_ROWS][WARP];
    const int64_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int64_t d = blockIdx.x * WARP + lane;
    const int64_t first = blockIdx.z == 0 ? 0 : a.queries,
                  end = blockIdx.z == 0 ? a.queries : a.heads;
    float sum = 0;
    for (int64_t n = blockIdx.y; n < a.N; n += gridDim.y)
        for (int64_t h = first + warp; h < end && d < a.D; h += COLUMN_ROWS) {
            const int64_t at = n * a.W + h * a.D + d;
            sum += to_float(a.dy[at]) * (to_float(a.x[at]) * a.scales[n * a.heads + h]);
        }
    shared[warp][lane] = sum;
    __syncthreads();
    if (warp != 0 || d >= a.D)
        return;
    for (int other = 1; other < COLUMN_ROWS; ++other)
        sum += shared[other][lane];
    a.partial[(blockIdx.y * 2 + blockIdx.z) * a.D + d] = sum;
}

// With normal = x scale and g = dy weight: dx = scale (g - normal * mean of (g normal)).
template <typename T> __global__ void __launch_bounds__(THREADS) head_norm_rows(norm<T> a)
{
    const int64_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (int64_t head = blockIdx.x * WARPS + warp; head < a.N * a.heads;
         head += (int64_t)gridDim.x * WARPS) {
        const T *x = a.x + a.head_at(head), *dy = a.dy + a.head_at(head);
        const T *weight = a.weight[a.of_keys(head)];
        T *dx = a.dx + a.head_at(head);
        const float scale = a.scales[head];
        float sum = 0;
        for (int64_t d = lane; d < a.D; d += WARP)
            sum += to_float(dy[d]) * to_float(weight[d]) * (to_float(x[d]) * scale);
        const float mean = warp_sum(sum) / static_cast<float>(a.D);
        for (int64_t d = lane; d < a.D; d += WARP) {
            const float g = to_float(dy[d]) * to_float(weight[d]);
            const float from = (g - to_float(x[d]) * scale * mean) * scale;
            dx[d] = from_float<T>(a.add_dx ? to_float(dx[d]) + from : from);
        }
    }
    if (a.add_dx || a.dx != a.dy)
        pass_values(a.dx, a.dy, a, a.add_dx);
}

// The weights' gradients (+)= the blocks' sums, a thread a column, blockIdx.y queries' or keys'.
template <typename T>
__global__ void __launch_bounds__(WARP) head_norm_sum(norm<T> a, int64_t blocks)
{
    const int64_t d = (int64_t)blockIdx.x * WARP + threadIdx.x;
    if (d >= a.D)
        return;
    float sum = 0;
#pragma unroll 8
    for (int64_t block = 0; block < blocks; ++block)
        sum += a.partial[(block * 2 + blockIdx.y) * a.D + d];
    if (a.dweight[blockIdx.y] == nullptr)
        return;
    T *to = a.dweight[blockIdx.y] + d;
    *to = from_float<T>(a.add_weight[blockIdx.y] ? to_float(*to) + sum : sum);
}

template <typename T> norm<T> arguments(const mics_op_call *call)
{
    const mics_heads heads = call->shape.heads;
    norm<T> a = {};
    a.x = static_cast<const T *>(call->in[0]);
    a.dy = static_cast<const T *>(call->dout);
    a.y = static_cast<T *>(call->out);
    a.dx = static_cast<T *>(call->din);
    for (int p = 0; p < 2; ++p) {
        a.weight[p] = static_cast<const T *>(call->params[p]);
        a.dweight[p] = static_cast<T *>(call->dparams[p]);
        a.add_weight[p] = call->add_params[p];
    }
    a.scales = call->stats;
    a.partial = static_cast<float *>(call->at->workspace);
    a.eps = call->shape.op->eps;
    a.N = call->shape.N;
    a.W = mics_heads_width(heads);
    a.D = heads.dim;
    a.queries = heads.query;
    a.heads = heads.query + heads.key_value;
    a.add_dx = call->add_din;
    return a;
}

template <typename T> void forward(const mics_op_call *call)
{
    const norm<T> a = arguments<T>(call);
    MICS_LAUNCH((head_norm_forward<T>), grid_of(a.N * a.heads, WARPS), THREADS, 0,
                stream_of(call->at), a);
}

template <typename T> void backward(const mics_op_call *call)
{
    const norm<T> a = arguments<T>(call);
    const int64_t blocks =
        a.N < MICS_NORM_ACCELERATOR_BLOCKS ? a.N : int64_t{MICS_NORM_ACCELERATOR_BLOCKS};
    const unsigned columns = static_cast<unsigned>(ceil_div(a.D, WARP));
    const cudaStream_t stream = stream_of(call->at);
    const bool of_weights = a.dweight[0] != nullptr || a.dweight[1] != nullptr;
    if (of_weights)
        MICS_LAUNCH((head_norm_columns<T>), dim3(columns, static_cast<unsigned>(blocks), 2),
                    COLUMN_ROWS * WARP, 0, stream, a);
    if (a.dx != nullptr)
        MICS_LAUNCH((head_norm_rows<T>), grid_of(a.N * a.heads, WARPS), THREADS, 0, stream, a);
    if (of_weights)
        MICS_LAUNCH((head_norm_sum<T>), dim3(columns, 2), WARP, 0, stream, a, blocks);
}

void run_forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, forward, call);
}

void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, backward, call);
}

} // namespace

const mics_op_kernels mics_cuda_head_norm_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                     nullptr,     nullptr,      nullptr, false};
