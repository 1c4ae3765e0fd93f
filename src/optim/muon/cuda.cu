// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Muon: the momentum of a part of a matrix, a matrix made orthogonal by cuBLASLt's GEMMs, and the
// step of a part along that. AdamW's step for what is no matrix. The norm stays on the device.
//
// Where a run's numbers have 16 bits, GEMMs read bf16, and the matrix itself stays in fp32.
#include "ops/common/cuda_ops.h"
#include "ops/common/map.cuh"
#include "ops/common/matmul_cuda.h"
#include "optim/muon/factors.h"

// m = momentum * m + keep * g; u = by_grad * g + by_moment * m.
struct muon_momentum_op {
    static const int PACK = 4, UNROLL = 2;
    float *moment, *direction;
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
        store_pack<COUNT>(direction + i, u);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<float, PACK>(moment + i, 0) && packs_fit<float, PACK>(direction + i, 0) &&
               packs_fit<float, PACK>(grads + i, 0);
    }
};

// copy = x / norm, or x without norm (NULL); x = MUON_A * the same.
template <typename T> struct muon_copy_op {
    static const int PACK = 4, UNROLL = 2;
    T *copy;
    float *x;
    const double *squares; // of the norm

    template <int COUNT> struct input {
        mics_pack<float, COUNT> x;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const float *>(x) + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<T, COUNT> rounded;
        mics_pack<float, COUNT> scaled;
        float scale = 1;
        if (squares != nullptr) {
            const double norm = sqrt(*squares);
            scale = static_cast<float>(1 / (norm > MUON_NORM_EPS ? norm : MUON_NORM_EPS));
        }
#pragma unroll
        for (int k = 0; k < COUNT; ++k) {
            const float value = scale * in.x.at[k];
            rounded.at[k] = from_float<T>(value);
            scaled.at[k] = MUON_A * value;
        }
        store_pack<COUNT>(copy + i, rounded);
        store_pack<COUNT>(x + i, scaled);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(copy + i, 0) && packs_fit<float, PACK>(x + i, 0);
    }
};

// gram = MUON_B * gram + MUON_C * quadratic.
template <typename T> struct muon_polynomial_op {
    static const int PACK = 4, UNROLL = 2;
    T *gram;
    const float *quadratic;

    template <int COUNT> struct input {
        mics_pack<T, COUNT> gram;
        mics_pack<float, COUNT> quadratic;
    };
    template <int COUNT> __device__ input<COUNT> load(int64_t i) const
    {
        return {load_pack<COUNT>(static_cast<const T *>(gram) + i),
                load_pack<COUNT>(quadratic + i)};
    }
    template <int COUNT> __device__ void store(int64_t i, const input<COUNT> &in) const
    {
        mics_pack<T, COUNT> out;
#pragma unroll
        for (int k = 0; k < COUNT; ++k)
            out.at[k] =
                from_float<T>(MUON_B * to_float(in.gram.at[k]) + MUON_C * in.quadratic.at[k]);
        store_pack<COUNT>(gram + i, out);
    }
    bool fits(int64_t i) const
    {
        return packs_fit<T, PACK>(gram + i, 0) && packs_fit<float, PACK>(quadratic + i, 0);
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

// One iteration, in place.
template <typename T>
static void iterate(const mics_exec *at, const muon_space &space, const mics_optimizer_update *u,
                    const double *squares)
{
    const int64_t side = space.side, rows = u->rows, columns = u->columns;
    const bool tall = rows > columns;
    T *copy = reinterpret_cast<T *>(space.copy), *gram = reinterpret_cast<T *>(space.gram);
    mics_cuda_gemm gemm = {};
    map(at, muon_copy_op<T>{copy, u->direction, squares}, rows * columns);
    gemm.a = gemm.b = copy;
    gemm.c = gram;
    gemm.transpose_a = tall;
    gemm.transpose_b = !tall;
    gemm.M = gemm.N = gemm.ldc = side;
    gemm.K = tall ? rows : columns;
    gemm.lda = gemm.ldb = columns;
    multiply(at, gemm);
    gemm.a = gemm.b = gram;
    gemm.c = space.quadratic;
    gemm.transpose_a = gemm.transpose_b = false;
    gemm.wide = true;
    gemm.K = gemm.lda = gemm.ldb = side;
    multiply(at, gemm);
    map(at, muon_polynomial_op<T>{gram, space.quadratic}, side * side);
    gemm.a = tall ? copy : gram;
    gemm.b = tall ? gram : copy;
    gemm.c = u->direction;
    gemm.add = true;
    gemm.M = rows;
    gemm.N = gemm.ldb = gemm.ldc = columns;
    multiply(at, gemm);
}

template <typename T>
static void orthogonalise(const mics_exec *at, const mics_optimizer_update *u, int32_t steps)
{
    const muon_space space = muon_space_of(at, u);
    double *squares = space.sums;
    mics_exec summing = *at;
    summing.workspace = squares + 32; // 256 bytes further on
    summing.workspace_bytes = MICS_CUDA_SUM_BYTES;
    cudaMemsetAsync(squares, 0, sizeof *squares, stream_of(at));
    mics_cuda_sum_squares(&summing, squares, u->direction, u->rows * u->columns);
    for (int32_t step = 0; step < steps; ++step)
        iterate<T>(at, space, u, step == 0 ? squares : nullptr);
}

// In bf16 whatever 16-bit numbers the run has: fp16 has too small a range.
static void orthogonalise_in(const mics_exec *at, const mics_optimizer_update *u, int32_t steps)
{
    mics_exec in = *at;
    if (at->dtype == MICS_DTYPE_FP32) {
        orthogonalise<float>(at, u, steps);
        return;
    }
    in.dtype = MICS_DTYPE_BF16;
    orthogonalise<__nv_bfloat16>(&in, u, steps);
}

template <typename T>
static void apply_to(const mics_exec *at, const mics_optimizer_update *u, const muon_factors &by)
{
    map(at, muon_apply_op<T, true>{static_cast<T *>(u->params), u->masters, u->direction, by},
        u->elems);
}

static void apply(const mics_exec *at, const mics_optimizer_update *u, const muon_factors &by)
{
    if (u->params)
        MICS_BY_DTYPE(at->dtype, apply_to, at, u, by);
    else
        map(at, muon_apply_op<float, false>{nullptr, u->masters, u->direction, by}, u->elems);
}

void mics_cuda_muon_update(const mics_exec *at, const mics_optimizer_update *u)
{
    const muon_factors by = muon_factors_of(u);
    switch (u->phase) {
    case MICS_UPDATE_MOMENTUM:
        map(at, muon_momentum_op{u->states[ADAMW_MOMENT1], u->direction, u->grads, by}, u->elems);
        break;
    case MICS_UPDATE_ORTHOGONALISE:
        orthogonalise_in(at, u, by.steps);
        break;
    case MICS_UPDATE_APPLY:
        apply(at, u, by);
        break;
    default: // ALL
        mics_cuda_adamw_update(at, u);
    }
}
