// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows that count, put together and apart again: a block a row. Bytes: 2 s R C.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"

enum { ROW_THREADS = 256 };

template <typename T, int COUNT, bool SCATTER>
__global__ void __launch_bounds__(ROW_THREADS)
    rows_kernel(T *to, const T *from, const int32_t *rows, int64_t R, int64_t C)
{
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        T *y = to + (SCATTER ? rows[r] : r) * C;
        const T *x = from + (SCATTER ? r : rows[r]) * C;
        for (int64_t c = threadIdx.x * COUNT; c < C; c += ROW_THREADS * COUNT)
            store_pack<COUNT>(y + c, load_pack<COUNT>(x + c));
    }
}

// The arguments of both entries.
struct rows_call {
    void *to;
    const void *from;
    const int32_t *rows;
    int64_t R, C;
};

template <typename T, int COUNT, bool SCATTER>
static void move_packs(const mics_exec *at, const rows_call &c)
{
    MICS_LAUNCH((rows_kernel<T, COUNT, SCATTER>), grid_of(c.R, 1), ROW_THREADS, 0, stream_of(at),
                static_cast<T *>(c.to), static_cast<const T *>(c.from), c.rows, c.R, c.C);
}

template <typename T, bool SCATTER> static void move(const mics_exec *at, const rows_call &c)
{
    const int PACK = 16 / sizeof(T);
    if (packs_fit<T, PACK>(c.to, c.C) && packs_fit<T, PACK>(c.from, c.C))
        move_packs<T, PACK, SCATTER>(at, c);
    else
        move_packs<T, 1, SCATTER>(at, c);
}

template <typename T> static void gather(const mics_exec *at, const rows_call &c)
{
    move<T, false>(at, c);
}

template <typename T> static void scatter(const mics_exec *at, const rows_call &c)
{
    move<T, true>(at, c);
}

void mics_cuda_gather_rows(const mics_exec *at, void *to, const void *from, const int32_t *rows,
                           int64_t R, int64_t C)
{
    const rows_call c = {to, from, rows, R, C};
    MICS_BY_DTYPE(at->dtype, gather, at, c);
}

void mics_cuda_scatter_rows(const mics_exec *at, void *to, const void *from, const int32_t *rows,
                            int64_t R, int64_t C)
{
    const rows_call c = {to, from, rows, R, C};
    MICS_BY_DTYPE(at->dtype, scatter, at, c);
}
