// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tanh form: gelu(x) = x s(2u), with s(z) = 1 / (1 + e^-z) and u = sqrt(2/pi) (x + 0.044715
// x^3); the exact form: x (1 + erf(x / sqrt 2)) / 2; and their derivatives, as in cpu.c. Bytes an
// element, of a dtype of s bytes: forward 2 s, backward 3 s (4 s when it adds). A thread computes
// 16 bytes of results at a time (map.cuh). Of 2-byte numbers memory brings some 5 elements a clock
// and multiprocessor, which leaves some 24 instructions for each: so one exponential and one
// reciprocal by the quick instructions. The exact form takes the library's erfcf, some 40
// instructions, and is limited by them.
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

// What of the normal distribution lies below x.
static __device__ __forceinline__ float normal_below(float x)
{
    return 0.5F * erfcf(-0.707106781F * x);
}

// P + x P', P being the normal distribution; 1 / sqrt(2 pi) = 0.39894228. Beyond 14, P' is 0.
template <typename T> static __device__ __forceinline__ float exact_slope(float x)
{
    const float in = limited(x, 14.0F);
    return normal_below(in) + in * mics_quick<T>::exp(-0.5F * in * in) * 0.39894228F;
}

template <typename T, bool EXACT> struct gelu_op {
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
            out.at[k] =
                from_float<T>(EXACT ? to_float(in.x.at[k]) * normal_below(to_float(in.x.at[k]))
                                    : gelu<T>(to_float(in.x.at[k])));
        store_pack<COUNT>(y + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(y + i, 0) && packs_fit<T, PACK>(x + i, 0);
    }
};

template <typename T, bool EXACT, bool ADD> struct gelu_backward_op {
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
            const float x_k = to_float(in.x.at[k]);
            const float from =
                to_float(in.dy.at[k]) * (EXACT ? exact_slope<T>(x_k) : gelu_slope<T>(x_k));
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

template <typename T> static void forward(const mics_op_call *call)
{
    const int64_t elems = call->shape.N * call->shape.out;
    T *y = static_cast<T *>(call->out);
    const T *x = static_cast<const T *>(call->in[0]);
    if (call->shape.op->exact)
        map(call->at, gelu_op<T, true>{y, x}, elems);
    else
        map(call->at, gelu_op<T, false>{y, x}, elems);
}

template <typename T, bool EXACT>
static void backward_of(const mics_op_call *call, const void *dout, bool add)
{
    const int64_t elems = call->shape.N * call->shape.out;
    T *to = static_cast<T *>(call->din);
    const T *from = static_cast<const T *>(dout), *in = static_cast<const T *>(call->in[0]);
    if (add)
        map(call->at, gelu_backward_op<T, EXACT, true>{to, from, in}, elems);
    else
        map(call->at, gelu_backward_op<T, EXACT, false>{to, from, in}, elems);
}

template <typename T> static void backward(const mics_op_call *call, const void *dout, bool add)
{
    if (call->shape.op->exact)
        backward_of<T, true>(call, dout, add);
    else
        backward_of<T, false>(call, dout, add);
}

static void run_forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, forward, call);
}

static void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, backward, call, call->dout, call->add_din);
}

void mics_cuda_gelu_forward(const mics_op_call *gelu)
{
    run_forward(gelu);
}

void mics_cuda_gelu_backward_in_place(const mics_op_call *gelu)
{
    MICS_BY_DTYPE(gelu->at->dtype, backward, gelu, gelu->din, false);
}

const mics_op_kernels mics_cuda_gelu_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                nullptr,     nullptr,      nullptr, false};
