// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One attention as its kernels see it, on tensor cores and in fp32.
#ifndef MICS_OP_ATTENTION_PROBLEM_CUH
#define MICS_OP_ATTENTION_PROBLEM_CUH

#include "ops/attention/attention_cuda.h"
#include "ops/common/launch.cuh"
#include "ops/common/numbers.cuh"
#include <math.h>

namespace
{

// Strides in elements, of a token's row.
template <typename T> struct problem {
    const T *qkv, *y, *dy;
    T *y_out, *dqkv;
    float *lse, *delta;
    int64_t T_, H, D;
    int64_t row_tiles; // of one head
    float scale;       // 1 / sqrt(D)
    bool vectors;      // rows of heads begin on 16 bytes and are whole 16 bytes long
};

// `tile_rows`: of a block's tile.
template <typename T>
problem<T> problem_of(const mics_exec *at, const mics_cuda_attention *a, int64_t tile_rows)
{
    problem<T> p = {};
    p.qkv = static_cast<const T *>(a->qkv_N3C);
    p.y = static_cast<const T *>(a->y_NC);
    p.dy = static_cast<const T *>(a->dy_NC);
    p.y_out = static_cast<T *>(a->y_NC);
    p.dqkv = static_cast<T *>(a->dqkv_N3C);
    p.lse = a->lse_NH;
    p.delta = static_cast<float *>(at->workspace);
    p.T_ = a->T;
    p.H = a->H;
    p.D = a->D;
    p.row_tiles = ceil_div(a->T, tile_rows);
    p.scale = 1.0F / sqrtf((float)a->D);
    const uintptr_t addresses =
        (uintptr_t)a->qkv_N3C | (uintptr_t)a->y_NC | (uintptr_t)a->dy_NC | (uintptr_t)a->dqkv_N3C;
    p.vectors = a->D % 8 == 0 && addresses % 16 == 0;
    return p;
}

// Blocks of a kernel: one a tile of each head.
template <typename T> unsigned blocks_of(const problem<T> &p, const mics_cuda_attention *a)
{
    return static_cast<unsigned>(p.row_tiles * a->B * a->H);
}

} // namespace

#endif
