// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums of two arrays, and conversions. Each reads its inputs and writes its output once, 16 bytes a
// thread and access, of conversions on the wider side (map.cuh); nothing but memory counts. Bytes
// an element, of a dtype of s bytes: add and accumulate 3 s, round and widen 4 + s.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"

template <typename T> struct add_op {
    static const int PACK = 16 / sizeof(T), UNROLL = 2;
    T *y;
    const T *a, *b;

    template <int COUNT> struct input {
        mics_pack<T, COUNT> a, b;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(a + i), load_pack<COUNT>(b + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<T, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            out.at[k] = from_float<T>(to_float(in.a.at[k]) + to_float(in.b.at[k]));
        store_pack<COUNT>(y + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(y + i, 0) && packs_fit<T, PACK>(a + i, 0) &&
               packs_fit<T, PACK>(b + i, 0);
    }
};

// Numbers of From as numbers of To.
template <typename To, typename From> struct convert_op {
    static const int PACK = 4, UNROLL = 4; // the wider side goes in 16 bytes
    To *out;
    const From *x;

    template <int COUNT> struct input {
        mics_pack<From, COUNT> x;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(x + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<To, COUNT> to;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            to.at[k] = from_float<To>(to_float(in.x.at[k]));
        store_pack<COUNT>(out + i, to);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<To, PACK>(out + i, 0) && packs_fit<From, PACK>(x + i, 0);
    }
};

template <typename T>
static void add(const mics_exec *at, void *y, const void *a, const void *b, int64_t elems)
{
    map(at, add_op<T>{static_cast<T *>(y), static_cast<const T *>(a), static_cast<const T *>(b)},
        elems);
}

template <typename T>
static void round_to(const mics_exec *at, void *out, const float *x, int64_t elems)
{
    map(at, convert_op<T, float>{static_cast<T *>(out), x}, elems);
}

template <typename T>
static void widen_from(const mics_exec *at, float *out, const void *x, int64_t elems)
{
    map(at, convert_op<float, T>{out, static_cast<const T *>(x)}, elems);
}

void mics_cuda_add(const mics_exec *at, void *y, const void *a, const void *b, int64_t elems)
{
    MICS_BY_DTYPE(at->dtype, add, at, y, a, b, elems);
}

void mics_cuda_accumulate(const mics_exec *at, void *y, const void *x, int64_t elems)
{
    MICS_BY_DTYPE(at->dtype, add, at, y, y, x, elems);
}

void mics_cuda_round(const mics_exec *at, void *out, const float *x, int64_t elems)
{
    MICS_BY_DTYPE(at->dtype, round_to, at, out, x, elems);
}

void mics_cuda_widen(const mics_exec *at, float *out, const void *x, int64_t elems)
{
    MICS_BY_DTYPE(at->dtype, widen_from, at, out, x, elems);
}
