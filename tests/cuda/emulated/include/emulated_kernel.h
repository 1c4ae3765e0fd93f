// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a kernel finds in CUDA C++: its place in the grid, vectors, barriers, exchanges inside a
// warp, integer atomics, a few intrinsics. No float atomics: what they give depends on order, and
// kernels here must not.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
// Not forced: each kernel would compile anew what it shares with others, three times the work.
#define __forceinline__ inline
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
// A block runs on one thread of the system at a time, its threads taking turns.
#define __shared__ static thread_local
#ifndef __restrict__
#define __restrict__ __restrict
#endif

// ---- vectors ----

#define MICS_EMULATED_VECTORS(type, name, align1, align2, align4)                                  \
    struct alignas(align1) name##1                                                                 \
    {                                                                                              \
        type x;                                                                                    \
    };                                                                                             \
    struct alignas(align2) name##2                                                                 \
    {                                                                                              \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3                                                                                 \
    {                                                                                              \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct alignas(align4) name##4                                                                 \
    {                                                                                              \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    inline name##1 make_##name##1(type x)                                                          \
    {                                                                                              \
        return {x};                                                                                \
    }                                                                                              \
    inline name##2 make_##name##2(type x, type y)                                                  \
    {                                                                                              \
        return {x, y};                                                                             \
    }                                                                                              \
    inline name##3 make_##name##3(type x, type y, type z)                                          \
    {                                                                                              \
        return {x, y, z};                                                                          \
    }                                                                                              \
    inline name##4 make_##name##4(type x, type y, type z, type w)                                  \
    {                                                                                              \
        return {x, y, z, w};                                                                       \
    }
MICS_EMULATED_VECTORS(signed char, char, 1, 2, 4)
MICS_EMULATED_VECTORS(unsigned char, uchar, 1, 2, 4)
MICS_EMULATED_VECTORS(short, short, 2, 4, 8)
MICS_EMULATED_VECTORS(unsigned short, ushort, 2, 4, 8)
MICS_EMULATED_VECTORS(int, int, 4, 8, 16)
MICS_EMULATED_VECTORS(unsigned, uint, 4, 8, 16)
MICS_EMULATED_VECTORS(long long, longlong, 8, 16, 16)
MICS_EMULATED_VECTORS(unsigned long long, ulonglong, 8, 16, 16)
MICS_EMULATED_VECTORS(float, float, 4, 8, 16)
MICS_EMULATED_VECTORS(double, double, 8, 16, 16)
#undef MICS_EMULATED_VECTORS

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z)
    {
    }
    operator uint3() const
    {
        return {x, y, z};
    }
};

namespace mics_emulated
{

// ---- a thread of a block; see kernel.cpp ----

struct place {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
};
// Of the thread that is running. Outside of kernels NULL, so that its use there is found. Not
// thread_local, for which gcc calls a function that the undefined-behaviour sanitizer takes for a
// null address.
extern __thread place *here;

// An operation of the threads of a warp: `run` is called once all of `mask` have come to it, on
// what each of them brought (NULL: the lane is not in the mask, or the block has no such thread).
struct warp_call {
    void (*run)(warp_call *const by_lane[32]);
    unsigned mask;
    const char *name, *file;
    int line;
};
void warp(warp_call *call);

enum barrier_sum { BARRIER_NONE, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };
int barrier(barrier_sum sum, int value, const char *file, int line);
void *dynamic_shared();
int lane();
// Prints "emulated: ..." with kernel, block and thread, and ends the process with SIGABRT.
[[noreturn]] void defect(const char *format, ...) __attribute__((format(printf, 1, 2)));

// ---- launches ----

struct launch_shape {
    const char *name;
    const void *kernel;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
};
void enqueue_kernel(const launch_shape &shape, std::function<void()> thread_main);
// An argument that points to memory must point to the device's, or to page-locked memory of the
// host.
void check_argument(const char *kernel, int index, const void *pointer);

template <typename T> void check_one(const char *kernel, int index, const T &value)
{
    if constexpr (std::is_pointer_v<T>)
        if constexpr (!std::is_function_v<std::remove_pointer_t<T>>)
            check_argument(kernel, index, static_cast<const void *>(value));
    (void)kernel;
    (void)index;
    (void)value;
}

template <typename... Params, typename... Args>
void launch(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream,
            void (*kernel)(Params...), Args &&...args)
{
    std::tuple<std::decay_t<Params>...> copies(std::forward<Args>(args)...);
    std::apply(
        [&](const auto &...each) {
            int index = 0;
            (check_one(name, index++, each), ...);
        },
        copies);
    enqueue_kernel(
        {name, reinterpret_cast<const void *>(kernel), grid, block, shared_bytes, stream},
        [kernel, copies]() { std::apply(kernel, copies); });
}

// ---- exchanges inside a warp ----

struct value_call : warp_call {
    uint64_t value, result;
    unsigned argument; // lane, distance or mask
    int width;
};
void shuffle_index(warp_call *const by_lane[32]);
void shuffle_up(warp_call *const by_lane[32]);
void shuffle_down(warp_call *const by_lane[32]);
void shuffle_xor(warp_call *const by_lane[32]);
void vote_ballot(warp_call *const by_lane[32]);
void vote_all(warp_call *const by_lane[32]);
void nothing(warp_call *const by_lane[32]);
void add_signed(warp_call *const by_lane[32]);
void max_signed(warp_call *const by_lane[32]);
void min_signed(warp_call *const by_lane[32]);

template <typename T>
T exchange(void (*run)(warp_call *const *), const char *name, unsigned mask, T value,
           unsigned argument, int width, const char *file, int line)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "4 or 8 bytes are exchanged");
    value_call call{};
    call.run = run;
    call.mask = mask;
    call.name = name;
    call.file = file;
    call.line = line;
    call.argument = argument;
    call.width = width;
    std::memcpy(&call.value, &value, sizeof(T));
    warp(&call);
    std::memcpy(&value, &call.result, sizeof(T));
    return value;
}

} // namespace mics_emulated

#define threadIdx (mics_emulated::here->thread)
#define blockIdx (mics_emulated::here->block)
#define blockDim (mics_emulated::here->block_dim)
#define gridDim (mics_emulated::here->grid_dim)
static const int warpSize = 32;

#define MICS_EMULATED_AT const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(MICS_EMULATED_AT)
{
    mics_emulated::barrier(mics_emulated::BARRIER_NONE, 0, file, line);
}
inline int __syncthreads_count(int value, MICS_EMULATED_AT)
{
    return mics_emulated::barrier(mics_emulated::BARRIER_COUNT, value, file, line);
}
inline int __syncthreads_and(int value, MICS_EMULATED_AT)
{
    return mics_emulated::barrier(mics_emulated::BARRIER_AND, value, file, line);
}
inline int __syncthreads_or(int value, MICS_EMULATED_AT)
{
    return mics_emulated::barrier(mics_emulated::BARRIER_OR, value, file, line);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, MICS_EMULATED_AT)
{
    mics_emulated::exchange(mics_emulated::nothing, "__syncwarp", mask, 0, 0, 32, file, line);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::shuffle_index, "__shfl_sync", mask, value,
                                   (unsigned)source, width, file, line);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::shuffle_up, "__shfl_up_sync", mask, value, delta,
                                   width, file, line);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::shuffle_down, "__shfl_down_sync", mask, value,
                                   delta, width, file, line);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::shuffle_xor, "__shfl_xor_sync", mask, value,
                                   (unsigned)lane_mask, width, file, line);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::vote_ballot, "__ballot_sync", mask,
                                   (unsigned)(predicate != 0), 0, 32, file, line);
}
inline int __any_sync(unsigned mask, int predicate, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::vote_ballot, "__any_sync", mask,
                                   (unsigned)(predicate != 0), 0, 32, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::vote_all, "__all_sync", mask,
                                   (int)(predicate != 0), 0, 32, file, line);
}
inline int __reduce_add_sync(unsigned mask, int value, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::add_signed, "__reduce_add_sync", mask, value, 0,
                                   32, file, line);
}
inline int __reduce_max_sync(unsigned mask, int value, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::max_signed, "__reduce_max_sync", mask, value, 0,
                                   32, file, line);
}
inline int __reduce_min_sync(unsigned mask, int value, MICS_EMULATED_AT)
{
    return mics_emulated::exchange(mics_emulated::min_signed, "__reduce_min_sync", mask, value, 0,
                                   32, file, line);
}

// ---- memory ----

inline void __threadfence()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_block()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
inline void __threadfence_system()
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
template <typename T> T __ldg(const T *p)
{
    return *p;
}
template <typename T> T __ldcs(const T *p)
{
    return *p;
}
template <typename T> T __ldcg(const T *p)
{
    return *p;
}
template <typename T> void __stcs(T *p, T value)
{
    *p = value;
}
template <typename T> void __stcg(T *p, T value)
{
    *p = value;
}

#define MICS_EMULATED_ATOMICS(type)                                                                \
    inline type atomicAdd(type *p, type value)                                                     \
    {                                                                                              \
        return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                     \
    }                                                                                              \
    inline type atomicExch(type *p, type value)                                                    \
    {                                                                                              \
        return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                    \
    }                                                                                              \
    inline type atomicCAS(type *p, type expected, type value)                                      \
    {                                                                                              \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_SEQ_CST,                  \
                                    __ATOMIC_SEQ_CST);                                             \
        return expected;                                                                           \
    }                                                                                              \
    inline type atomicOr(type *p, type value)                                                      \
    {                                                                                              \
        return __atomic_fetch_or(p, value, __ATOMIC_SEQ_CST);                                      \
    }                                                                                              \
    inline type atomicAnd(type *p, type value)                                                     \
    {                                                                                              \
        return __atomic_fetch_and(p, value, __ATOMIC_SEQ_CST);                                     \
    }                                                                                              \
    inline type atomicMax(type *p, type value)                                                     \
    {                                                                                              \
        type old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
        while (old < value && !__atomic_compare_exchange_n(p, &old, value, false,                  \
                                                           __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {  \
        }                                                                                          \
        return old;                                                                                \
    }                                                                                              \
    inline type atomicMin(type *p, type value)                                                     \
    {                                                                                              \
        type old = __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
        while (value < old && !__atomic_compare_exchange_n(p, &old, value, false,                  \
                                                           __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {  \
        }                                                                                          \
        return old;                                                                                \
    }
MICS_EMULATED_ATOMICS(int)
MICS_EMULATED_ATOMICS(unsigned)
MICS_EMULATED_ATOMICS(unsigned long long)
#undef MICS_EMULATED_ATOMICS

inline unsigned atomicInc(unsigned *p, unsigned limit)
{
    unsigned old = __atomic_load_n(p, __ATOMIC_SEQ_CST);
    while (!__atomic_compare_exchange_n(p, &old, old >= limit ? 0 : old + 1, false,
                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
    return old;
}

// ---- arithmetic ----

#define MICS_EMULATED_LEAST_MOST(type)                                                             \
    inline type min(type a, type b)                                                                \
    {                                                                                              \
        return b < a ? b : a;                                                                      \
    }                                                                                              \
    inline type max(type a, type b)                                                                \
    {                                                                                              \
        return a < b ? b : a;                                                                      \
    }
MICS_EMULATED_LEAST_MOST(int)
MICS_EMULATED_LEAST_MOST(unsigned)
MICS_EMULATED_LEAST_MOST(long)
MICS_EMULATED_LEAST_MOST(unsigned long)
MICS_EMULATED_LEAST_MOST(long long)
MICS_EMULATED_LEAST_MOST(unsigned long long)
#undef MICS_EMULATED_LEAST_MOST

inline float rsqrtf(float x)
{
    return 1.0f / std::sqrt(x);
}
inline double rsqrt(double x)
{
    return 1.0 / std::sqrt(x);
}
inline float __expf(float x)
{
    return std::exp(x);
}
inline float __logf(float x)
{
    return std::log(x);
}
inline float __log2f(float x)
{
    return std::log2(x);
}
inline float __fdividef(float a, float b)
{
    return a / b;
}
inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
inline float __frsqrt_rn(float x)
{
    return 1.0f / std::sqrt(x);
}
inline float __fsqrt_rn(float x)
{
    return std::sqrt(x);
}
inline float __fmaf_rn(float a, float b, float c)
{
    return std::fma(a, b, c);
}
inline float __saturatef(float x)
{
    return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f;
}
// Products and sums that are not to be contracted. The compiler may not see through the barriers.
inline float __fmul_rn(float a, float b)
{
    float product = a * b;
    __asm__("" : "+m"(product));
    return product;
}
inline float __fadd_rn(float a, float b)
{
    float sum = a + b;
    __asm__("" : "+m"(sum));
    return sum;
}
inline float __fsub_rn(float a, float b)
{
    return __fadd_rn(a, -b);
}
inline float __fdiv_rn(float a, float b)
{
    return a / b;
}

template <typename To, typename From> To mics_emulated_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "bits of one size");
    To to;
    std::memcpy(&to, &from, sizeof to);
    return to;
}
inline int __float_as_int(float x)
{
    return mics_emulated_bits<int>(x);
}
inline unsigned __float_as_uint(float x)
{
    return mics_emulated_bits<unsigned>(x);
}
inline float __int_as_float(int x)
{
    return mics_emulated_bits<float>(x);
}
inline float __uint_as_float(unsigned x)
{
    return mics_emulated_bits<float>(x);
}
inline long long __double_as_longlong(double x)
{
    return mics_emulated_bits<long long>(x);
}
inline double __longlong_as_double(long long x)
{
    return mics_emulated_bits<double>(x);
}
inline int __float2int_rn(float x)
{
    return (int)std::nearbyint(x);
}
inline int __float2int_rz(float x)
{
    return (int)x;
}
inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
inline int __ffs(int x)
{
    return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned a, unsigned b)
{
    return (unsigned)(((unsigned long long)a * b) >> 32);
}

// ---- templates of the runtime interface ----

namespace mics_emulated
{
cudaError_t set_function_attribute(const void *kernel, cudaFuncAttribute attribute, int value);
}

template <typename... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute, int value)
{
    return mics_emulated::set_function_attribute(reinterpret_cast<const void *>(kernel), attribute,
                                                 value);
}
template <typename... Params>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void (*kernel)(Params...),
                                                          int block_threads, size_t shared_bytes)
{
    (void)kernel;
    (void)shared_bytes;
    *blocks = block_threads > 0 ? 2048 / block_threads : 0;
    return cudaSuccess;
}
template <typename T> cudaError_t cudaMalloc(T **block, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(block), bytes);
}
template <typename T> cudaError_t cudaMallocHost(T **block, size_t bytes)
{
    return cudaMallocHost(reinterpret_cast<void **>(block), bytes);
}
