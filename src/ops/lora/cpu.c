// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The passes by GEMMs of the CPU. Those of bf16 give a product of low rank in fp32, so that it is
// rounded once, after it is scaled.
#include "ops/lora/cpu.h"
#include "ops/common/decode.h"
#include "ops/lora/passes.h"

static void *gemm_space(const mics_op_call *call)
{
    return (float *)call->at->workspace +
           mics_lora_space_of(&call->shape, (int64_t)sizeof(mics_elem), !MICS_ELEM_FP32).gemm;
}

static void multiply(const mics_op_call *call, mics_gemm_spec gemm)
{
    gemm.space = gemm_space(call);
    MICS_OP(gemm)(call->at, &gemm);
}

static void multiply_scaled(const mics_op_call *call, mics_gemm_spec gemm)
{
    const float scale = call->shape.op->lora.scale;
    const mics_lora_space space =
        mics_lora_space_of(&call->shape, (int64_t)sizeof(mics_elem), !MICS_ELEM_FP32);
    const int64_t M = gemm.M, N = gemm.N, ldc = gemm.ldc;
    mics_elem *low = gemm.c;
    float *wide =
        (float *)call->at->workspace + space.wide + (low - (mics_elem *)call->at->workspace);
    gemm.wide = true;
    gemm.c = wide;
    multiply(call, gemm);
#pragma omp parallel for if (M * N >= MICS_OP_PARALLEL)
    for (int64_t m = 0; m < M; ++m) {
#pragma omp simd
        for (int64_t n = 0; n < N; ++n)
            low[m * ldc + n] = mics_store(wide[m * ldc + n] * scale);
    }
}

static void copy(const mics_op_call *call, void *to, const void *from)
{
    const int64_t N = call->shape.N, O = call->shape.out;
#pragma omp parallel for if (N * O >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n)
        memcpy((mics_elem *)to + n * O, (const mics_elem *)from + n * O,
               (size_t)O * sizeof(mics_elem));
}

static void accumulate(const mics_op_call *call, void *to, const void *from)
{
    MICS_OP(accumulate)(call->at, to, from, call->shape.N * call->shape.out);
}

static const mics_lora_device device = {.elem_bytes = (int64_t)sizeof(mics_elem),
                                        .widens = !MICS_ELEM_FP32,
                                        .dropout = &MICS_OP(dropout_kernels),
                                        .multiply = multiply,
                                        .multiply_scaled = multiply_scaled,
                                        .copy = copy,
                                        .accumulate = accumulate};

void MICS_OP(lora_add)(const mics_op_call *call)
{
    mics_lora_add(&device, call);
}

static void forward(const mics_op_call *call)
{
    mics_lora_forward(&device, call);
}

static void backward(const mics_op_call *call)
{
    mics_lora_backward(&device, call);
}

const mics_op_kernels MICS_OP(lora_kernels) = {.forward = forward,
                                               .backward = backward,
                                               .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(lora_decode)
                                                                        : NULL};
