// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows that count, put together and apart again: a block a row. Bytes: 2 s R C.
#include "ops/common/cuda_ops.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"

enum { ROW_THREADS = 256 };

struct rows_call {
    void *to;
    const void *from;
    const int32_t *rows;
    int64_t R, C;
    bool scatter;
};

template <typename T, int COUNT>
__global__ void __launch_bounds__(ROW_THREADS) rows_kernel(rows_call call)
{
    for (int64_t r = blockIdx.x; r < call.R; r += gridDim.x) {
        const int64_t own = call.rows[r];
        T *y = static_cast<T *>(call.to) + (call.scatter ? own : r) * call.C;
        const T *x = static_cast<const T *>(call.from) + (call.scatter ? r : own) * call.C;
        for (int64_t c = threadIdx.x * COUNT; c < call.C; c += ROW_THREADS * COUNT)
            store_pack<COUNT>(y + c, load_pack<COUNT>(x + c));
    }
}

template <typename T> static void move(const mics_exec *at, const rows_call &c)
{
    const int PACK = 16 / sizeof(T);
    if (packs_fit<T, PACK>(c.to, c.C) && packs_fit<T, PACK>(c.from, c.C))
        MICS_LAUNCH((rows_kernel<T, PACK>), grid_of(c.R, 1), ROW_THREADS, 0, stream_of(at), c);
    else
        MICS_LAUNCH((rows_kernel<T, 1>), grid_of(c.R, 1), ROW_THREADS, 0, stream_of(at), c);
}

void mics_cuda_move_rows(const mics_exec *at, void *to, const void *from, const int32_t *rows,
                         int64_t R, int64_t C, bool scatter)
{
    const rows_call c = {to, from, rows, R, C, scatter};
    MICS_BY_DTYPE(at->dtype, move, at, c);
}
