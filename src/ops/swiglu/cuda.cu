// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = g s(g) u, with s(g) = 1 / (1 + e^-g), and its gradients, as in cpu.c. A block a row: gate and
// up lie I numbers apart in a row of 2 I. Of rows that travelled, those that hold something. Bytes an output, of a dtype of s bytes: forward 3 s,
// backward 5 s (7 s when it adds). A thread computes 16 bytes of results at a time where rows are
// aligned, by the quick instructions, as in gelu/cuda.cu.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/experts/rows.cuh"

namespace
{

constexpr int MAX_THREADS = 256, WARP_THREADS = 32;

// Below, s is 0 to within 2e-38, and e^-g is still finite.
constexpr float LOWEST_GATE = -87.0F;

template <typename T> __device__ __forceinline__ float sigmoid(float e)
{
    return mics_quick<T>::divide(1.0F, 1.0F + e);
}

template <typename T, int COUNT>
__global__ void __launch_bounds__(MAX_THREADS)
    swiglu_forward(T *y, const T *x, tags_of_rows<T> tags, int64_t N, int64_t I)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        if (!tags.holds(n))
            continue;
        const T *gate_I = x + 2 * n * I, *up_I = gate_I + I;
        for (int64_t i = threadIdx.x * COUNT; i < I; i += (int64_t)blockDim.x * COUNT) {
            const auto gate = load_pack<COUNT>(gate_I + i), up = load_pack<COUNT>(up_I + i);
            mics_pack<T, COUNT> out;
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                const float g = to_float(gate.at[k]), in = g < LOWEST_GATE ? LOWEST_GATE : g;
                const float s = sigmoid<T>(mics_quick<T>::exp(-in));
                out.at[k] = from_float<T>(in * s * to_float(up.at[k]));
            }
            store_pack<COUNT>(y + n * I + i, out);
        }
    }
}

// s (1 + g (1 - s)) u dy and g s dy, with 1 - s = e^-g s, which does not cancel.
template <typename T, int COUNT, bool ADD>
__global__ void __launch_bounds__(MAX_THREADS)
    swiglu_backward(T *dx, const T *dy, const T *x, tags_of_rows<T> tags, int64_t N, int64_t I)
{
    for (int64_t n = blockIdx.x; n < N; n += gridDim.x) {
        if (!tags.holds(n))
            continue;
        const T *gate_I = x + 2 * n * I, *up_I = gate_I + I;
        T *dgate_I = dx + 2 * n * I, *dup_I = dgate_I + I;
        for (int64_t i = threadIdx.x * COUNT; i < I; i += (int64_t)blockDim.x * COUNT) {
            const auto gate = load_pack<COUNT>(gate_I + i), up = load_pack<COUNT>(up_I + i);
            const auto from = load_pack<COUNT>(dy + n * I + i);
            mics_pack<T, COUNT> dgate, dup;
            if (ADD) {
                dgate = load_pack<COUNT>(dgate_I + i);
                dup = load_pack<COUNT>(dup_I + i);
            }
#pragma unroll
            for (int k = 0; k < COUNT; ++k) {
                const float in = to_float(gate.at[k]), g = in < LOWEST_GATE ? LOWEST_GATE : in;
                const float e = mics_quick<T>::exp(-g), s = sigmoid<T>(e), d = to_float(from.at[k]);
                const float of_gate = d * to_float(up.at[k]) * s * (1.0F + g * (e * s));
                const float of_up = d * g * s;
                dgate.at[k] = from_float<T>(ADD ? to_float(dgate.at[k]) + of_gate : of_gate);
                dup.at[k] = from_float<T>(ADD ? to_float(dup.at[k]) + of_up : of_up);
            }
            store_pack<COUNT>(dgate_I + i, dgate);
            store_pack<COUNT>(dup_I + i, dup);
        }
    }
}

// Rows: of tokens, or of tokens at their experts.
int64_t rows_of(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    if (op->expert_ranks > 0)
        return call->shape.N * op->travel_rows;
    return call->shape.N * (op->experts.count > 0 ? op->experts.chosen : 1);
}
int64_t outputs_of(const mics_op_call *call)
{
    return call->shape.N * call->shape.out / rows_of(call);
}

unsigned row_threads(int64_t packs)
{
    const int64_t whole = ceil_div(packs, WARP_THREADS) * WARP_THREADS;
    return static_cast<unsigned>(whole < MAX_THREADS ? whole : int64_t{MAX_THREADS});
}

template <typename T, int COUNT> void launch_forward(const mics_op_call *call)
{
    const int64_t N = rows_of(call), I = outputs_of(call);
    MICS_LAUNCH((swiglu_forward<T, COUNT>), grid_of(N, 1), row_threads(ceil_div(I, COUNT)), 0,
                stream_of(call->at), static_cast<T *>(call->out),
                static_cast<const T *>(call->in[0]), tags_that_came<T>(call), N, I);
}

template <typename T, int COUNT, bool ADD> void launch_backward(const mics_op_call *call)
{
    const int64_t N = rows_of(call), I = outputs_of(call);
    MICS_LAUNCH((swiglu_backward<T, COUNT, ADD>), grid_of(N, 1), row_threads(ceil_div(I, COUNT)), 0,
                stream_of(call->at), static_cast<T *>(call->din),
                static_cast<const T *>(call->dout), static_cast<const T *>(call->in[0]),
                tags_that_came<T>(call), N, I);
}

template <typename T> void forward(const mics_op_call *call)
{
    constexpr int COUNT = 16 / sizeof(T);
    const int64_t I = outputs_of(call);
    if (packs_fit<T, COUNT>(call->in[0], I) && packs_fit<T, COUNT>(call->out, I))
        launch_forward<T, COUNT>(call);
    else
        launch_forward<T, 1>(call);
}

template <typename T, bool ADD> void backward_of(const mics_op_call *call)
{
    constexpr int COUNT = 16 / sizeof(T);
    const int64_t I = outputs_of(call);
    if (packs_fit<T, COUNT>(call->in[0], I) && packs_fit<T, COUNT>(call->dout, I) &&
        packs_fit<T, COUNT>(call->din, I))
        launch_backward<T, COUNT, ADD>(call);
    else
        launch_backward<T, 1, ADD>(call);
}

template <typename T> void backward(const mics_op_call *call)
{
    if (call->add_din)
        backward_of<T, true>(call);
    else
        backward_of<T, false>(call);
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

const mics_op_kernels mics_cuda_swiglu_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                  nullptr,     nullptr,      nullptr, false};
