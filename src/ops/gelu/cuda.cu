// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// gelu(x) = x s(2u), with s(z) = 1 / (1 + e^-z) and u = sqrt(2/pi) (x + 0.044715 x^3), and its
// derivative, as in cpu.c. Bytes an element, of a dtype of s bytes: forward 2 s, backward 3 s (4 s
// when it adds). A thread computes 16 bytes of results at a time (map.cuh). Of 2-byte numbers
// memory brings some 5 elements a clock and multiprocessor, which leaves some 24 instructions for
// each: so one exponential and one reciprocal by the quick instructions.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"

static __device__ __forceinline__ float exp_argument(float x)
{
    const float two_sqrt_2_pi = 1.595769121605731F; // 2 sqrt(2/pi)
    return -two_sqrt_2_pi * x * (1.0F + 0.044715F * x * x);
}

static __device__ __forceinline__ float limited(float x, float limit)
{
    const float in = x > limit ? limit : x; // NaN stays
    return in < -limit ? -limit : in;
}

template <typename T> static __device__ __forceinline__ float gelu(float x)
{
    // Beyond 10, s is 1 or 0 to within 1e-36; a 1 + e^-2u above 8.9e37 might have no quick
    // reciprocal.
    const float e = mics_quick<T>::exp(exp_argument(limited(x, 10.0F)));
    return mics_quick<T>::divide(x, 1.0F + e);
}

// s + x s (1 - s) (2u)', with 1 - s = e^-2u s, which does not cancel. At 10, e^-2u is still finite
// (8.9e37).
template <typename T> static __device__ __forceinline__ float gelu_slope(float x)
{
    const float two_sqrt_2_pi = 1.595769121605731F;
    const float in = limited(x, 10.0F);
    const float e = mics_quick<T>::exp(exp_argument(in));
    const float s = mics_quick<T>::divide(1.0F, 1.0F + e);
    return s + in * s * (e * s) * two_sqrt_2_pi * (1.0F + 3.0F * 0.044715F * in * in);
}

template <typename T> struct gelu_op {
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
            out.at[k] = from_float<T>(gelu<T>(to_float(in.x.at[k])));
        store_pack<COUNT>(y + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(y + i, 0) && packs_fit<T, PACK>(x + i, 0);
    }
};

template <typename T, bool ADD> struct gelu_backward_op {
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
            const float from = to_float(in.dy.at[k]) * gelu_slope<T>(to_float(in.x.at[k]));
            out.at[k] = from_float<T>(ADD ? to_float(in.dx.at[k]) + from : from);
        }
        store_pack<COUNT>(dx + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(dx + i, 0) && packs_fit<T, PACK>(dy + i, 0) &&
               packs_fit<T, PACK>(x + i, 0);
    }
};

template <typename T>
static void forward(const mics_exec *at, void *y, const void *x, int64_t elems)
{
    map(at, gelu_op<T>{static_cast<T *>(y), static_cast<const T *>(x)}, elems);
}

template <typename T>
static void backward(const mics_exec *at, void *dx, const void *dy, const void *x, int64_t elems,
                     bool add_dx)
{
    T *to = static_cast<T *>(dx);
    const T *from = static_cast<const T *>(dy), *in = static_cast<const T *>(x);
    if (add_dx)
        map(at, gelu_backward_op<T, true>{to, from, in}, elems);
    else
        map(at, gelu_backward_op<T, false>{to, from, in}, elems);
}

void mics_cuda_gelu_forward(const mics_exec *at, void *y, const void *x, int64_t elems)
{
    MICS_BY_DTYPE(at->dtype, forward, at, y, x, elems);
}

void mics_cuda_gelu_backward(const mics_exec *at, void *dx, const void *dy, const void *x,
                             int64_t elems, bool add_dx)
{
    MICS_BY_DTYPE(at->dtype, backward, at, dx, dy, x, elems, add_dx);
}

static void run_forward(const mics_op_call *call)
{
    mics_cuda_gelu_forward(call->at, call->out, call->in[0], call->shape.N * call->shape.out);
}

static void run_backward(const mics_op_call *call)
{
    mics_cuda_gelu_backward(call->at, call->din, call->dout, call->in[0],
                            call->shape.N * call->shape.out, call->add_din);
}

const mics_op_kernels mics_cuda_gelu_kernels = {run_forward, run_backward, nullptr, nullptr};
