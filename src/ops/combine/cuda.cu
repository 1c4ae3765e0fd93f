// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Each token's sum over its experts' rows by the router's weights, and its gradients, as in cpu.c: a
// block a token. Bytes: forward s (k + 1) a number of a token, backward s (3 k).
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/team.cuh"
#include "ops/experts/rows.cuh"

namespace
{

constexpr int GRADIENT_THREADS = 256;

template <typename T> struct gradient_problem {
    T *drows, *dweights; // in blocks; (N, k); NULL: not wanted
    const T *dy, *rows, *weights;
    rows_of_tokens of;
    int64_t N;
};

// The gradient of one row: weight dy. Gives this thread's part of dy times the row.
template <typename T, int COUNT>
__device__ __forceinline__ float scale_row(const gradient_problem<T> &p, const T *dy_C, int64_t at,
                                           float weight)
{
    float sum = 0;
    for (int64_t i = threadIdx.x * COUNT; i < p.of.width; i += (int64_t)GRADIENT_THREADS * COUNT) {
        auto d = load_pack<COUNT>(dy_C + i);
        const auto row = load_pack<COUNT>(p.rows + at + i);
#pragma unroll
        for (int c = 0; c < COUNT; ++c) {
            sum += to_float(d.at[c]) * to_float(row.at[c]);
            d.at[c] = from_float<T>(to_float(d.at[c]) * weight);
        }
        if (p.drows != nullptr)
            store_pack<COUNT>(p.drows + at + i, d);
    }
    return sum;
}

// A row that is dropped gave nothing.
template <typename T, int COUNT>
__global__ void __launch_bounds__(GRADIENT_THREADS) combine_gradients(gradient_problem<T> p)
{
    __shared__ float shared[MAX_WARPS];
    const int chosen = p.of.from.chosen;
    for (int64_t n = blockIdx.x; n < p.N; n += gridDim.x)
        for (int j = 0; j < chosen; ++j) {
            const int64_t at = p.of.place(n, j), k = n * chosen + j;
            float sum = 0;
            if (at >= 0)
                sum = scale_row<T, COUNT>(p, p.dy + n * p.of.width, at, to_float(p.weights[k]));
            sum = team_sum<GRADIENT_THREADS>(sum, shared);
            if (threadIdx.x == 0 && p.dweights != nullptr)
                p.dweights[k] = from_float<T>(sum);
        }
}

template <typename T, int COUNT>
void launch_gradients(const mics_op_call *call, const gradient_problem<T> &p)
{
    MICS_LAUNCH((combine_gradients<T, COUNT>), grid_of(p.N, 1), GRADIENT_THREADS, 0,
                stream_of(call->at), p);
}

template <typename T> void gradients(const mics_op_call *call, const mics_cuda_routes *routes)
{
    constexpr int COUNT = 16 / sizeof(T);
    const int64_t C = call->shape.out;
    const gradient_problem<T> p = {static_cast<T *>(call->din),
                                   static_cast<T *>(call->din_second),
                                   static_cast<const T *>(call->dout),
                                   static_cast<const T *>(call->in[0]),
                                   static_cast<const T *>(call->in[1]),
                                   sent_rows(call, routes, C, call->shape.in[0]),
                                   call->shape.N};
    if (packs_fit<T, COUNT>(p.dy, C) && packs_fit<T, COUNT>(p.rows, C) &&
        packs_fit<T, COUNT>(p.drows, C) && p.of.block_elems % COUNT == 0)
        launch_gradients<T, COUNT>(call, p);
    else
        launch_gradients<T, 1>(call, p);
}

void run_forward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    const mics_cuda_experts_sum sum = {call->out, call->in[0], call->in[1],      call->shape.out,
                                       false,     &routes,     call->shape.in[0]};
    mics_cuda_experts_add_up(call, &sum);
}

void run_backward(const mics_op_call *call)
{
    const mics_cuda_routes routes = mics_cuda_experts_route(call);
    MICS_BY_DTYPE(call->at->dtype, gradients, call, &routes);
}

} // namespace

const mics_op_kernels mics_cuda_combine_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                   nullptr,     nullptr,      nullptr, false};
