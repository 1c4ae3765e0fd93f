// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The passes by GEMMs of the CPU. In bf16 x A^T and its gradient come in fp32, so that they
// are rounded once, after they are scaled.
#include "ops/common/decode.h"
#include "ops/common/gemm_packed.h"
#include "ops/lora/passes.h"

static void multiply(const mics_op_call *call, mics_gemm_spec gemm, bool scaled)
{
    const mics_lora_space space =
        mics_lora_space_of(&call->shape, (int64_t)sizeof(mics_elem), !MICS_ELEM_FP32);
    float *workspace = call->at->workspace;
    const float scale = call->shape.op->lora.scale;
    const int64_t M = gemm.M, N = gemm.N, ldc = gemm.ldc;
    mics_elem *low = gemm.c;
    float *wide = workspace + space.wide;
    gemm.space = workspace + space.gemm;
    gemm.wide = scaled;
    if (scaled) // at the same place as in `low`
        gemm.c = wide += low - (mics_elem *)(void *)workspace;
    MICS_OP(gemm)(call->at, &gemm);
#pragma omp parallel for if (M * N >= MICS_OP_PARALLEL)
    for (int64_t m = 0; m < (scaled ? M : 0); ++m) {
#pragma omp simd
        for (int64_t n = 0; n < N; ++n)
            low[m * ldc + n] = mics_store(wide[m * ldc + n] * scale);
    }
}

static void copy(const mics_op_call *call, void *to, const void *from, bool add)
{
    const int64_t elems = call->shape.N * call->shape.out;
    if (add)
        MICS_OP(accumulate)(call->at, to, from, elems);
    else
        memcpy(to, from, (size_t)elems * sizeof(mics_elem));
}

static const mics_lora_device device = {(int64_t)sizeof(mics_elem), !MICS_ELEM_FP32,
                                        &MICS_OP(dropout_kernels), multiply, copy};

void MICS_OP(lora_add)(const mics_op_call *call)
{
    mics_lora_add(&device, call);
}

bool MICS_OP(lora_join)(const mics_op_call *call, mics_gemm_spec *gemm)
{
    const mics_lora_group g = mics_lora_group_of(&device, call, 0, false);
    mics_gemm_spec joined = *gemm;
    mics_lora_tails(&g, &joined);
    if (MICS_ELEM_FP32 || g.drops || !mics_gemm_takes_tails(&joined))
        return false;
    mics_lora_down(&g);
    joined.space = (float *)call->at->workspace +
                   mics_lora_space_of(&call->shape, (int64_t)sizeof(mics_elem), true).gemm;
    *gemm = joined;
    return true;
}

static void forward(const mics_op_call *call)
{
    copy(call, call->out, call->in[0], false);
    mics_lora_add(&device, call);
}

static void backward(const mics_op_call *call)
{
    mics_lora_backward(&device, call);
}

const mics_op_kernels MICS_OP(lora_kernels) = {.forward = forward,
                                               .backward = backward,
                                               .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(lora_decode)
                                                                        : NULL};
