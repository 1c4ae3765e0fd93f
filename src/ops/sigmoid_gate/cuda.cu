// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Row by row, a block each; backward takes a row's dot product before it writes, so that it may be
// in place. Bytes a number, of a dtype of s bytes: forward 2 s, backward 5 s.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include "ops/common/team.cuh"

namespace
{

constexpr int GATE_THREADS = 256;

__device__ __forceinline__ float sigmoid(float gate)
{
    return 1.0F / (1.0F + expf(-gate));
}

template <typename T, int COUNT>
__global__ void __launch_bounds__(GATE_THREADS)
    gate_forward(T *y, const T *x, const T *gate_N, int64_t N, int64_t C)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        const float by = sigmoid(to_float(gate_N[n]));
        for (int64_t c = threadIdx.x * COUNT; c < C; c += (int64_t)GATE_THREADS * COUNT) {
            auto pack = load_pack<COUNT>(x + n * C + c);
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                pack.at[i] = from_float<T>(to_float(pack.at[i]) * by);
            store_pack<COUNT>(y + n * C + c, pack);
        }
    }
}

template <typename T> struct gate_gradients {
    T *dx, *dgate_N; // NULL: not wanted
    const T *x, *gate_N, *dy;
    int64_t N, C;
    bool add;
};

template <typename T, int COUNT>
__global__ void __launch_bounds__(GATE_THREADS) gate_backward(gate_gradients<T> g)
{
    __shared__ float shared[MAX_WARPS];
    for (int64_t n = blockIdx.x; n < g.N; n += gridDim.x) {
        const float by = sigmoid(to_float(g.gate_N[n]));
        float dot = 0;
        for (int64_t c = threadIdx.x * COUNT; c < g.C; c += (int64_t)GATE_THREADS * COUNT) {
            const auto dy = load_pack<COUNT>(g.dy + n * g.C + c);
            const auto x = load_pack<COUNT>(g.x + n * g.C + c);
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                dot += to_float(dy.at[i]) * to_float(x.at[i]);
        }
        dot = team_sum<GATE_THREADS>(dot, shared);
        if (threadIdx.x == 0 && g.dgate_N != nullptr)
            g.dgate_N[n] = from_float<T>(dot * by * (1 - by));
        for (int64_t c = threadIdx.x * COUNT; g.dx != nullptr && c < g.C;
             c += (int64_t)GATE_THREADS * COUNT) {
            const auto dy = load_pack<COUNT>(g.dy + n * g.C + c);
            T *to = g.dx + n * g.C + c;
            mics_pack<T, COUNT> dx = {};
            if (g.add)
                dx = load_pack<COUNT>(static_cast<const T *>(to));
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                dx.at[i] =
                    from_float<T>(to_float(dy.at[i]) * by + (g.add ? to_float(dx.at[i]) : 0.0F));
            store_pack<COUNT>(to, dx);
        }
    }
}

template <typename T, int COUNT> void launch_forward(const mics_op_call *call)
{
    const int64_t N = call->shape.N;
    MICS_LAUNCH((gate_forward<T, COUNT>), grid_of(N, 1), GATE_THREADS, 0, stream_of(call->at),
                static_cast<T *>(call->out), static_cast<const T *>(call->in[0]),
                static_cast<const T *>(call->in[1]), N, call->shape.out);
}

template <typename T> void forward(const mics_op_call *call)
{
    constexpr int COUNT = 16 / sizeof(T);
    const int64_t C = call->shape.out;
    if (packs_fit<T, COUNT>(call->in[0], C) && packs_fit<T, COUNT>(call->out, C))
        launch_forward<T, COUNT>(call);
    else
        launch_forward<T, 1>(call);
}

template <typename T, int COUNT> void launch_backward(const mics_op_call *call)
{
    const gate_gradients<T> g = {static_cast<T *>(call->din),
                                 static_cast<T *>(call->din_second),
                                 static_cast<const T *>(call->in[0]),
                                 static_cast<const T *>(call->in[1]),
                                 static_cast<const T *>(call->dout),
                                 call->shape.N,
                                 call->shape.out,
                                 call->add_din};
    MICS_LAUNCH((gate_backward<T, COUNT>), grid_of(g.N, 1), GATE_THREADS, 0, stream_of(call->at),
                g);
}

template <typename T> void backward(const mics_op_call *call)
{
    constexpr int COUNT = 16 / sizeof(T);
    const int64_t C = call->shape.out;
    if (packs_fit<T, COUNT>(call->in[0], C) && packs_fit<T, COUNT>(call->dout, C) &&
        packs_fit<T, COUNT>(call->din, C))
        launch_backward<T, COUNT>(call);
    else
        launch_backward<T, 1>(call);
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

const mics_op_kernels mics_cuda_sigmoid_gate_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                        nullptr,     nullptr,      nullptr, false};
