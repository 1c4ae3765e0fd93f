// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Muon: the momentum of a part of a matrix, and the step of a part by the whole matrix's momentum
// made orthogonal, by cuBLASLt's GEMMs in fp32. AdamW's step for what is no matrix. The norm stays
// on the device.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"
#include "ops/common/matmul_cuda.h"
#include "optim/muon/factors.h"

// m = momentum * m + keep * g; whole = by_grad * g + by_moment * m.
struct muon_momentum_op {
    static const int PACK = 4, UNROLL = 2;
    float *moment, *whole;
    const float *grads;
    muon_factors by;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> m, g;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(moment) + i),
                load_pack<COUNT>(grads + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> m, u;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float g = in.g.at[k] * by.grad_scale;
            m.at[k] = by.momentum * in.m.at[k] + by.keep * g;
            u.at[k] = by.by_grad * g + by.by_moment * m.at[k];
        }
        store_pack<COUNT>(moment + i, m);
        store_pack<COUNT>(whole + i, u);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(moment + i, 0) && packs_fit<float, PACK>(whole + i, 0) &&
               packs_fit<float, PACK>(grads + i, 0);
    }
};

// y = by_x * x / norm + by_y * y, without norm (NULL) or y (by_y = 0, when it is not read).
struct muon_sum_op {
    static const int PACK = 4, UNROLL = 2;
    float *y;
    const float *x;
    float by_x, by_y;
    const double *squares; // of the norm

    template <int COUNT> struct input {
        mics_pack<float, COUNT> x, y;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        input<COUNT> in;
        in.x = load_pack<COUNT>(x + i);
        if (by_y != 0)
            in.y = load_pack<COUNT>(static_cast<const float *>(y) + i);
        return in;
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> out;
        float scale = by_x;
        if (squares != nullptr) {
            const double norm = sqrt(*squares);
            scale = static_cast<float>(by_x / (norm > MUON_NORM_EPS ? norm : MUON_NORM_EPS));
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            out.at[k] = scale * in.x.at[k];
            if (by_y != 0)
                out.at[k] += by_y * in.y.at[k];
        }
        store_pack<COUNT>(y + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(y + i, 0) && packs_fit<float, PACK>(x + i, 0);
    }
};

// p -= rate * step + decay * p.
template <typename T, bool ROUND> struct muon_apply_op {
    static const int PACK = 4, UNROLL = 2;
    T *params;
    float *masters;
    const float *step;
    muon_factors by;

    template <int COUNT> struct input {
        mics_pack<float, COUNT> p, s;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(masters) + i),
                load_pack<COUNT>(step + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<float, COUNT> p;
        mics_pack<T, COUNT> rounded;
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            p.at[k] = in.p.at[k] - (by.rate * in.s.at[k] + by.decay * in.p.at[k]);
            if (ROUND)
                rounded.at[k] = from_float<T>(p.at[k]);
        }
        store_pack<COUNT>(masters + i, p);
        if (ROUND)
            store_pack<COUNT>(params + i, rounded);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(masters + i, 0) && packs_fit<float, PACK>(step + i, 0) &&
               (!ROUND || packs_fit<T, PACK>(params + i, 0));
    }
};

static void multiply(const mics_exec *at, const mics_cuda_gemm &gemm)
{
    mics_cuda_matmul(at, &gemm, nullptr, 0);
}

// One iteration: space.next from space.x.
static void iterate(const mics_exec *at, const muon_space &space, int64_t rows, int64_t columns)
{
    const int64_t side = space.side, square = side * side;
    const bool tall = rows > columns;
    mics_cuda_gemm gemm = {};
    gemm.a = gemm.b = space.x;
    gemm.c = space.gram;
    gemm.transpose_a = tall;
    gemm.transpose_b = !tall;
    gemm.M = gemm.N = gemm.ldc = side;
    gemm.K = tall ? rows : columns;
    gemm.lda = gemm.ldb = columns;
    multiply(at, gemm);
    gemm.a = gemm.b = space.gram;
    gemm.c = space.quadratic;
    gemm.transpose_a = gemm.transpose_b = false;
    gemm.K = gemm.lda = gemm.ldb = side;
    multiply(at, gemm);
    map(at, muon_sum_op{space.quadratic, space.gram, MUON_B, MUON_C, nullptr}, square);
    map(at, muon_sum_op{space.next, space.x, MUON_A, 0, nullptr}, rows * columns);
    gemm.a = tall ? space.x : space.quadratic;
    gemm.b = tall ? space.quadratic : space.x;
    gemm.c = space.next;
    gemm.add = true;
    gemm.M = rows;
    gemm.N = gemm.ldb = gemm.ldc = columns;
    multiply(at, gemm);
}

// The whole matrix, made orthogonal, in the workspace.
static const float *orthogonalise(const mics_exec *at, const mics_optimizer_update *u,
                                  int32_t steps)
{
    muon_space space = muon_space_of(at, u);
    const int64_t elems = u->rows * u->columns;
    double *squares = space.sums;
    mics_exec summing = *at;
    summing.workspace = squares + 32; // 256 bytes further on
    summing.workspace_bytes = MICS_CUDA_SUM_BYTES;
    cudaMemsetAsync(squares, 0, sizeof *squares, stream_of(at));
    mics_cuda_sum_squares(&summing, squares, u->whole, elems);
    map(at, muon_sum_op{space.x, u->whole, 1, 0, squares}, elems);
    for (int32_t step = 0; step < steps; ++step) {
        iterate(at, space, u->rows, u->columns);
        float *last = space.x;
        space.x = space.next;
        space.next = last;
    }
    return space.x;
}

template <typename T>
static void apply_to(const mics_exec *at, const mics_optimizer_update *u, const muon_factors &by,
                     const float *step)
{
    map(at, muon_apply_op<T, true>{static_cast<T *>(u->params), u->masters, step, by}, u->elems);
}

void mics_cuda_muon_update(const mics_exec *at, const mics_optimizer_update *u)
{
    const muon_factors by = muon_factors_of(u);
    if (!u->whole) {
        mics_cuda_adamw_update(at, u);
        return;
    }
    if (u->begins) {
        map(at, muon_momentum_op{u->states[ADAMW_MOMENT1], u->whole + u->begin, u->grads, by},
            u->elems);
        return;
    }
    mics_exec wide = *at;
    wide.dtype = MICS_DTYPE_FP32;
    const float *step = orthogonalise(&wide, u, by.steps) + u->begin;
    if (u->params)
        MICS_BY_DTYPE(at->dtype, apply_to, at, u, by, step);
    else
        map(at, muon_apply_op<float, false>{nullptr, u->masters, step, by}, u->elems);
}
