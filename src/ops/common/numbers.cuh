// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Numbers of a dtype as kernels see them: read in packs of 16 bytes, computed with as fp32, rounded once when stored.
// Also what every file of kernels needs on the host: the stream of a place, a choice by dtype, alignment.
#ifndef MICS_OP_NUMBERS_CUH
#define MICS_OP_NUMBERS_CUH

#include "mics/kernels.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// ---- in kernels ----

// COUNT numbers that lie together; read and written as whole 16 bytes, to which they have to be aligned if they are as
// many.
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) mics_pack {
    T at[COUNT];
};

template <int COUNT, typename T>
static __device__ __forceinline__ mics_pack<T, COUNT> load_pack(const T *from)
{
    return *reinterpret_cast<const mics_pack<T, COUNT> *>(from);
}

template <int COUNT, typename T>
static __device__ __forceinline__ void store_pack(T *to, const mics_pack<T, COUNT> &pack)
{
    *reinterpret_cast<mics_pack<T, COUNT> *>(to) = pack;
}

// Tells the compiler that the pack may have changed: it then holds these 16 bytes until their next use, rather than the
// 8 floats that it made of them at their last.
template <typename T, int COUNT>
static __device__ __forceinline__ void hold_packed(mics_pack<T, COUNT> &pack)
{
#ifdef __CUDA_ARCH__
    static_assert(sizeof pack == 16, "whole packs are held");
    uint4 *words = reinterpret_cast<uint4 *>(&pack);
    asm volatile("" : "+r"(words->x), "+r"(words->y), "+r"(words->z), "+r"(words->w));
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

// e^x and a / b: of 2-byte numbers by one instruction of the chip each, whose errors of some 2^-21 vanish when the result
// is rounded, and which give 0 for what is below 1.2e-38; of fp32 to the last bit or two.
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

static inline cudaStream_t stream_of(const mics_op_place *at)
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

// Whether packs of COUNT numbers of T may be read from p, and from every multiple of `elems` behind it.
template <typename T, int COUNT> static inline bool packs_fit(const void *p, int64_t elems)
{
    return reinterpret_cast<uintptr_t>(p) % alignof(mics_pack<T, COUNT>) == 0 && elems % COUNT == 0;
}

#endif
