// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Numbers of one type as numbers of the other, written or added. Bytes an element, of a dtype of s
// bytes: 4 + s, and what is added to once more. The wider side goes in 16 bytes (map.cuh).
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"

template <typename To, typename From, bool ADD> struct cast_op {
    static const int PACK = 4, UNROLL = 4;
    To *to;
    const From *from;

    template <int COUNT> struct input {
        mics_pack<From, COUNT> from;
        mics_pack<To, COUNT> to;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.from = load_pack<COUNT>(from + i);
        if (ADD)
            in.to = load_pack<COUNT>(to + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<To, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float x = to_float(in.from.at[k]);
            out.at[k] = from_float<To>(ADD ? to_float(in.to.at[k]) + x : x);
        }
        store_pack<COUNT>(to + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<To, PACK>(to + i, 0) && packs_fit<From, PACK>(from + i, 0);
    }
};

template <typename To, typename From>
static void cast(const mics_op_call *call, void *to, const void *from, bool add)
{
    const int64_t elems = call->shape.N * call->shape.out;
    To *out = static_cast<To *>(to);
    const From *in = static_cast<const From *>(from);
    if (add)
        map(call->at, cast_op<To, From, true>{out, in}, elems);
    else
        map(call->at, cast_op<To, From, false>{out, in}, elems);
}

template <typename T> static void forward(const mics_op_call *call)
{
    if (call->shape.op->wide)
        cast<float, T>(call, call->out, call->in[0], false);
    else
        cast<T, float>(call, call->out, call->in[0], false);
}

template <typename T> static void backward(const mics_op_call *call)
{
    if (call->shape.op->wide)
        cast<T, float>(call, call->din, call->dout, call->add_din);
    else
        cast<float, T>(call, call->din, call->dout, call->add_din);
}

static void run_forward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, forward, call);
}

static void run_backward(const mics_op_call *call)
{
    MICS_BY_DTYPE(call->at->dtype, backward, call);
}

const mics_op_kernels mics_cuda_cast_kernels = {run_forward, run_backward, nullptr, nullptr,
                                                nullptr,     nullptr,      nullptr, false};
