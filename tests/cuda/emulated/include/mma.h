// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Matrix fragments of a warp, 16 x 16 x 16, bf16 or fp16 products summed in fp32. Which lane holds
// which element is nobody's business, as on the chip; but all of a thread's `x[i]` may be scaled or
// replaced alike.
#pragma once

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "cuda_runtime.h"

namespace nvcuda
{
namespace wmma
{

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

// Element (row, column) lies with lane (16 row + column) / 8. Inputs have twice as many elements a
// thread as are needed, as on the chip; the second half repeats the first.
template <typename Use, int M, int N, int K, typename T, typename Layout = void> struct fragment {
    static_assert(M == 16 && N == 16 && K == 16, "16 x 16 x 16 is emulated");
    static constexpr int num_elements = std::is_same_v<Use, accumulator> ? 8 : 16;
    T x[num_elements];
};

template <typename Use, typename T, typename Layout>
void fill_fragment(fragment<Use, 16, 16, 16, T, Layout> &f, const T &value)
{
    for (T &x : f.x)
        x = value;
}

// Addresses on 32 bytes and rows on 16, as documented; a check, since most chips forgive it
// sometimes.
inline void check_tile(const void *p, unsigned ldm, size_t elem_bytes, const char *what)
{
    if (reinterpret_cast<uintptr_t>(p) % 32 != 0 || ldm * elem_bytes % 16 != 0)
        mics_emulated::defect("%s: address %p must be on 32 bytes, and rows of %u elements on 16",
                              what, p, ldm);
}

// All lanes of the warp must come.
inline void converge(const char *name, const char *file, int line)
{
    mics_emulated::exchange(mics_emulated::nothing, name, 0xffffffffu, 0, 0, 32, file, line);
}

template <typename Use, typename T, typename Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout> &f, const T *p, unsigned ldm,
                      MICS_EMULATED_AT)
{
    check_tile(p, ldm, sizeof(T), "load_matrix_sync");
    converge("load_matrix_sync", file, line);
    for (int i = 0; i < f.num_elements; i++) {
        const int at = mics_emulated::lane() * 8 + i % 8, row = at / 16, column = at % 16;
        f.x[i] = std::is_same_v<Layout, col_major> ? p[(size_t)column * ldm + row]
                                                   : p[(size_t)row * ldm + column];
    }
}

template <typename T>
void load_matrix_sync(fragment<accumulator, 16, 16, 16, T> &f, const T *p, unsigned ldm,
                      layout_t layout, MICS_EMULATED_AT)
{
    check_tile(p, ldm, sizeof(T), "load_matrix_sync");
    converge("load_matrix_sync", file, line);
    for (int i = 0; i < 8; i++) {
        const int at = mics_emulated::lane() * 8 + i, row = at / 16, column = at % 16;
        f.x[i] =
            layout == mem_col_major ? p[(size_t)column * ldm + row] : p[(size_t)row * ldm + column];
    }
}

template <typename T>
void store_matrix_sync(T *p, const fragment<accumulator, 16, 16, 16, T> &f, unsigned ldm,
                       layout_t layout, MICS_EMULATED_AT)
{
    check_tile(p, ldm, sizeof(T), "store_matrix_sync");
    converge("store_matrix_sync", file, line);
    for (int i = 0; i < 8; i++) {
        const int at = mics_emulated::lane() * 8 + i, row = at / 16, column = at % 16;
        (layout == mem_col_major ? p[(size_t)column * ldm + row] : p[(size_t)row * ldm + column]) =
            f.x[i];
    }
}

// One product of the whole warp: d = a b + c, of 16 x 16 matrices.
template <typename T> struct mma_call : mics_emulated::warp_call {
    const T *a, *b;
    const float *c;
    float *d;

    static void multiply(mics_emulated::warp_call *const by_lane[32])
    {
        float a[256], b[256], d[256];
        for (int at = 0; at < 256; at++) {
            const auto *lane = static_cast<const mma_call *>(by_lane[at / 8]);
            if (lane == nullptr)
                mics_emulated::defect("mma_sync by a warp that is not whole");
            a[at] = (float)lane->a[at % 8];
            b[at] = (float)lane->b[at % 8];
            d[at] = lane->c[at % 8];
        }
        for (int row = 0; row < 16; row++)
            for (int k = 0; k < 16; k++)
                for (int column = 0; column < 16; column++)
                    d[16 * row + column] += a[16 * row + k] * b[16 * k + column];
        for (int at = 0; at < 256; at++)
            static_cast<mma_call *>(by_lane[at / 8])->d[at % 8] = d[at];
    }
};

template <typename T, typename LayoutA, typename LayoutB>
void mma_sync(fragment<accumulator, 16, 16, 16, float> &d,
              const fragment<matrix_a, 16, 16, 16, T, LayoutA> &a,
              const fragment<matrix_b, 16, 16, 16, T, LayoutB> &b,
              const fragment<accumulator, 16, 16, 16, float> &c, MICS_EMULATED_AT)
{
    mma_call<T> call{};
    call.run = mma_call<T>::multiply;
    call.mask = 0xffffffffu;
    call.name = "mma_sync";
    call.file = file;
    call.line = line;
    call.a = a.x;
    call.b = b.x;
    call.c = c.x;
    call.d = d.x;
    mics_emulated::warp(&call);
}

} // namespace wmma
} // namespace nvcuda
