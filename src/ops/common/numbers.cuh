// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Numbers of a dtype as kernels see them: read in packs of 16 bytes, computed with as fp32, rounded
// once when stored. Also what every file of kernels needs on the host: the stream of a call, a
// choice by dtype, alignment.
#pragma once

#include "ops/kernels.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <string.h>

// ---- in kernels ----

// COUNT numbers that lie together; read and written as whole 16 bytes, to which they have to be
// aligned if they are as many.
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) mics_pack {
    T at[COUNT];
};

// The registers that one instruction loads or stores.
template <int BYTES> struct mics_words;
template <> struct mics_words<2> {
    typedef unsigned short type;
};
template <> struct mics_words<4> {
    typedef unsigned type;
};
template <> struct mics_words<8> {
    typedef uint2 type;
};
template <> struct mics_words<16> {
    typedef uint4 type;
};

// What is not aligned ends a kernel on a chip, and is found by the emulation.
static __device__ __forceinline__ void expect_aligned(const void *at, size_t bytes)
{
#ifdef MICS_CUDA_EMULATED
    if (reinterpret_cast<uintptr_t>(at) % bytes != 0)
        mics_emulated::defect("%p must be on %zu bytes", at, bytes);
#else
    (void)at;
    (void)bytes;
#endif
}

// One load of global memory, aligned to its size. Device code may read any memory as CUDA's vector
// types, C++ for a CPU may not.
template <typename Words, typename T>
static __device__ __forceinline__ Words load_words(const T *from)
{
    expect_aligned(from, sizeof(Words));
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const Words *>(from);
#else
    Words words;
    memcpy(&words, from, sizeof words);
    return words;
#endif
}

// One store to global memory, aligned to its size. nvcc takes an assignment of a vector apart, and
// puts the parts together again only where it sees that it may: 13.0 does so for two of four stores
// in a row. So the instruction is named.
template <typename T, typename Words>
static __device__ __forceinline__ void store_words(T *to, const Words &words)
{
    expect_aligned(to, sizeof words);
#ifdef __CUDA_ARCH__
    if constexpr (sizeof words == 16)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x),
                     "r"(words.y), "r"(words.z), "r"(words.w)
                     : "memory");
    else if constexpr (sizeof words == 8)
        asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words.x), "r"(words.y)
                     : "memory");
    else
        *reinterpret_cast<Words *>(to) = words;
#else
    memcpy(to, &words, sizeof words);
#endif
}

template <int COUNT, typename T>
static __device__ __forceinline__ mics_pack<T, COUNT> load_pack(const T *from)
{
    mics_pack<T, COUNT> pack;
    const auto words = load_words<typename mics_words<sizeof pack>::type>(from);
    memcpy(&pack, &words, sizeof pack);
    return pack;
}

template <int COUNT, typename T>
static __device__ __forceinline__ void store_pack(T *to, const mics_pack<T, COUNT> &pack)
{
    typename mics_words<sizeof pack>::type words;
    memcpy(&words, &pack, sizeof words);
    store_words(to, words);
}

// A thread's sums, which lie together; in fours, for which `to` must be on 16 bytes, where they are
// as many.
template <int COUNT>
static __device__ __forceinline__ void store_floats(float *to, const float (&sums)[COUNT])
{
    constexpr int FEW = COUNT % 4 == 0 ? 4 : 1;
#pragma unroll
    for (int k = 0; k < COUNT; k += FEW) {
        mics_pack<float, FEW> pack;
#pragma unroll
        for (int i = 0; i < FEW; ++i)
            pack.at[i] = sums[k + i];
        store_pack<FEW>(to + k, pack);
    }
}

// Tells the compiler that the pack may have changed: it then holds these 16 bytes until their next
// use, rather than the 8 floats that it made of them at their last.
template <typename T, int COUNT>
static __device__ __forceinline__ void hold_packed(mics_pack<T, COUNT> &pack)
{
#ifdef __CUDA_ARCH__
    static_assert(sizeof pack == 16, "whole packs are held");
    uint4 words;
    memcpy(&words, &pack, sizeof words);
    asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
    memcpy(&pack, &words, sizeof words);
#else
    (void)pack;
#endif
}

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}

template <typename T> static __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ __half from_float<__half>(float x)
{
    return __float2half_rn(x);
}

// e^x and a / b: of 2-byte numbers by one instruction of the chip each, whose errors of some 2^-21
// vanish when the result is rounded, and which give 0 for what is below 1.2e-38; of fp32 to the
// last bit or two.
template <typename T> struct mics_quick {
    static __device__ __forceinline__ float exp(float x)
    {
#ifdef __CUDA_ARCH__
        float y;
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504F)); // log2 e
        return y;
#else
        return expf(x);
#endif
    }
    static __device__ __forceinline__ float divide(float a, float b)
    {
#ifdef __CUDA_ARCH__
        float y;
        asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(b));
        return a * y;
#else
        return a / b;
#endif
    }
};
template <> struct mics_quick<float> {
    static __device__ __forceinline__ float exp(float x)
    {
        return expf(x);
    }
    static __device__ __forceinline__ float divide(float a, float b)
    {
        return a / b;
    }
};

// This thread's number in the grid, and how many there are.
static __device__ __forceinline__ int64_t grid_thread()
{
    return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t grid_threads()
{
    return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// ---- on the host ----

static inline cudaStream_t stream_of(const mics_exec *at)
{
    return static_cast<cudaStream_t>(at->device->ops->stream_handle(at->device->ctx, at->stream));
}

// call<T>(arguments...) with T for `dtype`.
#define MICS_BY_DTYPE(dtype, call, ...)                                                            \
    do {                                                                                           \
        if ((dtype) == MICS_DTYPE_FP32)                                                            \
            call<float>(__VA_ARGS__);                                                              \
        else if ((dtype) == MICS_DTYPE_BF16)                                                       \
            call<__nv_bfloat16>(__VA_ARGS__);                                                      \
        else                                                                                       \
            call<__half>(__VA_ARGS__);                                                             \
    } while (0)

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

// Blocks for `work` threads in all, in a kernel that loops over what is left.
static inline unsigned grid_of(int64_t work, int threads)
{
    const int64_t blocks = ceil_div(work, threads), most = 1 << 20;
    return static_cast<unsigned>(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

// Whether packs of COUNT numbers of T may be read from p, and from every multiple of `elems` behind
// it.
template <typename T, int COUNT> static inline bool packs_fit(const void *p, int64_t elems)
{
    return reinterpret_cast<uintptr_t>(p) % alignof(mics_pack<T, COUNT>) == 0 && elems % COUNT == 0;
}
