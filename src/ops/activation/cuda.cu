// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// relu(x) = max(x, 0) and silu(x) = x / (1 + e^-x), and their slopes, as in cpu.c. Bytes an element,
// of a dtype of s bytes: forward 2 s, backward 3 s (4 s when it adds). A thread computes 16 bytes of
// results at a time (map.cuh), by the quick instructions, as in gelu/cuda.cu.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"

// Below, 1 / (1 + e^-x) is 0 to within 2e-38, and e^-x is still finite.
static const float SILU_LOWEST = -87.0F;

template <typename T> struct relu {
    static __device__ __forceinline__ float value(float x)
    {
        return x < 0.0F ? 0.0F : x;
    }
    static __device__ __forceinline__ float slope(float x)
    {
        return x <= 0.0F ? 0.0F : 1.0F;
    }
};

template <typename T> struct silu {
    static __device__ __forceinline__ float value(float x)
    {
        const float in = x < SILU_LOWEST ? SILU_LOWEST : x; // NaN stays
        return in * mics_quick<T>::divide(1.0F, 1.0F + mics_quick<T>::exp(-in));
    }
    // s (1 + x (1 - s)), with 1 - s = e^-x s, which does not cancel.
    static __device__ __forceinline__ float slope(float x)
    {
        const float in = x < SILU_LOWEST ? SILU_LOWEST : x;
        const float e = mics_quick<T>::exp(-in), s = mics_quick<T>::divide(1.0F, 1.0F + e);
        return s * (1.0F + in * (e * s));
    }
};

template <typename T, typename F> struct activation_op {
    static const int PACK = 16 / sizeof(T), UNROLL = 2;
    T *y;
    const T *x;

    template <int COUNT> struct input {
        mics_pack<T, COUNT> x;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(x + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<T, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            out.at[k] = from_float<T>(F::value(to_float(in.x.at[k])));
        store_pack<COUNT>(y + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(y + i, 0) && packs_fit<T, PACK>(x + i, 0);
    }
};

template <typename T, typename F, bool ADD> struct activation_backward_op {
    static const int PACK = 16 / sizeof(T), UNROLL = 2;
    T *dx;
    const T *dy, *x;

    template <int COUNT> struct input {
        mics_pack<T, COUNT> dy, x, dx;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.dy = load_pack<COUNT>(dy + i);
        in.x = load_pack<COUNT>(x + i);
        if (ADD)
            in.dx = load_pack<COUNT>(dx + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<T, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float own = to_float(in.dy.at[k]) * F::slope(to_float(in.x.at[k]));
            out.at[k] = from_float<T>(ADD ? to_float(in.dx.at[k]) + own : own);
        }
        store_pack<COUNT>(dx + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(dx + i, 0) && packs_fit<T, PACK>(dy + i, 0) &&
               packs_fit<T, PACK>(x + i, 0);
    }
};

template <typename T, typename F> static void forward_of(const mics_op_call *call)
{
    map(call->at,
        activation_op<T, F>{static_cast<T *>(call->out), static_cast<const T *>(call->in[0])},
        call->shape.N * call->shape.out);
}

template <typename T, typename F, bool ADD> static void backward_of(const mics_op_call *call)
{
    map(call->at,
        activation_backward_op<T, F, ADD>{static_cast<T *>(call->din),
                                          static_cast<const T *>(call->dout),
                                          static_cast<const T *>(call->in[0])},
        call->shape.N * call->shape.out);
}

static bool is_relu(const mics_op_call *call)
{
    return call->shape.op->activation == MICS_ACTIVATION_RELU;
}

template <typename T> static void forward(const mics_op_call *call)
{
    if (is_relu(call))
        forward_of<T, relu<T>>(call);
    else
        forward_of<T, silu<T>>(call);
}

template <typename T, typename F> static void backward_with(const mics_op_call *call)
{
    if (call->add_din)
        backward_of<T, F, true>(call);
    else
        backward_of<T, F, false>(call);
}

template <typename T> static void backward(const mics_op_call *call)
{
    if (is_relu(call))
        backward_with<T, relu<T>>(call);
    else
        backward_with<T, silu<T>>(call);
}

static void run_forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, forward, call);
}

static void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, backward, call);
}

const mics_op_kernels mics_cuda_activation_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                      nullptr,     nullptr,      nullptr, false};
