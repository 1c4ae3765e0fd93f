// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What src/ops/common/mma.cuh takes from here on a CPU: products of fragments, loads of
// fragments, and copies that are late. Which lane holds what is as PTX says it (ISA 8.0, section
// 9.7.13), since kernels rely on it.
//
// A copy that has begun leaves NaN in its place until the thread waits for it, so reading it early
// is found.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"
#include <map>
#include <vector>

namespace mics_emulated
{

template <typename T> float pair_value(uint32_t pair, int half)
{
    const uint16_t bits = (uint16_t)(half ? pair >> 16 : pair);
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return float(value);
}

struct mma_call : warp_call {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

// a (16, 16) b (16, 8) of all lanes, then each lane's four sums. Sums over k run in fp32 in order, of
// a row's columns at once.
template <typename T> void mma_run(warp_call *const by_lane[32])
{
    typedef float columns __attribute__((vector_size(8 * sizeof(float))));
    float a[16][16];
    columns b[16], c[16];
    for (int lane = 0; lane < 32; ++lane) {
        const mma_call &call = *static_cast<const mma_call *>(by_lane[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int half = 0; half < 2; ++half) {
            for (int r = 0; r < 4; ++r)
                a[g + r % 2 * 8][2 * t + r / 2 * 8 + half] = pair_value<T>(call.a[r], half);
            for (int r = 0; r < 2; ++r) {
                b[2 * t + 8 * r + half][g] = pair_value<T>(call.b[r], half);
                c[g + r * 8][2 * t + half] = call.c[2 * r + half];
            }
        }
    }
    for (int row = 0; row < 16; ++row)
        for (int k = 0; k < 16; ++k)
            c[row] += a[row][k] * b[k];
    for (int lane = 0; lane < 32; ++lane)
        for (int i = 0; i < 4; ++i)
            static_cast<const mma_call *>(by_lane[lane])->c[i] =
                c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
}

struct tf32_call : warp_call {
    float *c;
    const uint32_t *a;
    uint32_t b[2];
};

// The same of a (16, 8) b (8, 8). What was not rounded to tf32 is found.
inline void tf32_run(warp_call *const by_lane[32])
{
    float a[16][8], b[8][8];
    for (int lane = 0; lane < 32; ++lane) {
        const tf32_call &call = *static_cast<const tf32_call *>(by_lane[lane]);
        const int g = lane / 4, t = lane % 4;
        for (int r = 0; r < 4; ++r)
            a[g + r % 2 * 8][t + r / 2 * 4] = __uint_as_float(call.a[r]);
        for (int r = 0; r < 2; ++r)
            b[t + 4 * r][g] = __uint_as_float(call.b[r]);
        if (((call.a[0] | call.a[1] | call.a[2] | call.a[3] | call.b[0] | call.b[1]) & 0x1fffU) !=
            0)
            defect("multiply_add_tf32: a number is not rounded");
    }
    for (int lane = 0; lane < 32; ++lane) {
        const tf32_call &call = *static_cast<const tf32_call *>(by_lane[lane]);
        for (int i = 0; i < 4; ++i)
            for (int k = 0; k < 8; ++k)
                call.c[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
    }
}

struct matrices_call : warp_call {
    uint32_t *r;
    const unsigned char *row;
};

template <bool TRANSPOSED> void matrices_run(warp_call *const by_lane[32])
{
    for (int lane = 0; lane < 32; ++lane) {
        const matrices_call &call = *static_cast<const matrices_call *>(by_lane[lane]);
        for (int matrix = 0; matrix < 4; ++matrix) {
            uint16_t pair[2];
            for (int half = 0; half < 2; ++half) {
                const int row = TRANSPOSED ? lane % 4 * 2 + half : lane / 4;
                const int column = TRANSPOSED ? lane / 4 : lane % 4 * 2 + half;
                const matrices_call &owner =
                    *static_cast<const matrices_call *>(by_lane[matrix * 8 + row]);
                std::memcpy(&pair[half], owner.row + 2 * column, 2);
            }
            call.r[matrix] = (uint32_t)pair[0] | (uint32_t)pair[1] << 16;
        }
    }
}

template <typename Call>
void warp_all(Call *call, void (*run)(warp_call *const *), const char *name, const char *file,
              int line)
{
    call->run = run;
    call->mask = 0xffffffffu;
    call->name = name;
    call->file = file;
    call->line = line;
    warp(call);
}

template <bool TRANSPOSED>
void load_any(uint32_t (&r)[4], const void *row, const char *file, int line)
{
    if (reinterpret_cast<uintptr_t>(row) % 16 != 0)
        defect("load_matrices: row %p must be on 16 bytes", row);
    matrices_call call{};
    call.r = r;
    call.row = static_cast<const unsigned char *>(row);
    warp_all(&call, matrices_run<TRANSPOSED>, "load_matrices", file, line);
}

// ---- copies, of each thread of the block that is running ----

struct late_copy {
    void *to;
    const void *from; // NULL: zeros
    int group;
};
struct late_copies {
    std::vector<late_copy> copies;
    int groups; // committed so far
};
inline std::map<const place *, late_copies> &late_of_all()
{
    static thread_local std::map<const place *, late_copies> all;
    return all;
}

} // namespace mics_emulated

template <typename T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T,
                  MICS_EMULATED_AT)
{
    mics_emulated::mma_call call{};
    call.c = c;
    call.a = a;
    call.b[0] = b0;
    call.b[1] = b1;
    mics_emulated::warp_all(&call, mics_emulated::mma_run<T>, "multiply_add", file, line);
}

inline void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                              MICS_EMULATED_AT)
{
    mics_emulated::tf32_call call{};
    call.c = c;
    call.a = a;
    call.b[0] = b0;
    call.b[1] = b1;
    mics_emulated::warp_all(&call, mics_emulated::tf32_run, "multiply_add_tf32", file, line);
}

inline uint32_t to_tf32(float x)
{
    const uint32_t bits = __float_as_uint(x);
    return (bits & 0x7f800000U) == 0x7f800000U ? bits & ~0x1fffU : (bits + 0x1000U) & ~0x1fffU;
}

inline void load_matrices(uint32_t (&r)[4], const void *row, MICS_EMULATED_AT)
{
    mics_emulated::load_any<false>(r, row, file, line);
}
inline void load_matrices_transposed(uint32_t (&r)[4], const void *row, MICS_EMULATED_AT)
{
    mics_emulated::load_any<true>(r, row, file, line);
}

inline void copy_begin(void *to, const void *from, bool valid)
{
    if (reinterpret_cast<uintptr_t>(to) % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0)
        mics_emulated::defect("copy_begin: %p and %p must be on 16 bytes", to, from);
    mics_emulated::late_copies &late = mics_emulated::late_of_all()[mics_emulated::here];
    late.copies.push_back({to, valid ? from : nullptr, late.groups});
    std::memset(to, 0xff, 16);
}
inline void copy_commit()
{
    mics_emulated::late_of_all()[mics_emulated::here].groups++;
}
template <int PENDING> void copy_wait()
{
    mics_emulated::late_copies &late = mics_emulated::late_of_all()[mics_emulated::here];
    std::vector<mics_emulated::late_copy> later;
    for (const mics_emulated::late_copy &copy : late.copies) {
        if (copy.group >= late.groups - PENDING)
            later.push_back(copy);
        else if (copy.from)
            std::memcpy(copy.to, copy.from, 16);
        else
            std::memset(copy.to, 0, 16);
    }
    late.copies.swap(later);
}

inline float exp2_near(float x)
{
    return std::exp2(x);
}
