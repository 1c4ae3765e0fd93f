// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The passes by GEMMs of the library, which scales a product before it rounds it, and by the masks
// of dropout/cuda.cu. Calls of a stream run in order, so GEMMs share a workspace.
#include "ops/common/cuda_ops.h"
#include "ops/common/matmul_cuda.h"
#include "ops/lora/passes.h"

static void run_gemm(const mics_op_call *call, const mics_gemm_spec *of, float alpha)
{
    const mics_exec *at = call->at;
    const int64_t space =
        mics_lora_space_of(&call->shape, (int64_t)mics_dtype_bytes(at->dtype), false).gemm;
    const size_t before = (size_t)space * sizeof(float);
    const mics_cuda_gemm gemm = {.a = of->a,
                                 .b = of->b,
                                 .c = of->c,
                                 .transpose_a = of->transpose_a,
                                 .transpose_b = of->transpose_b,
                                 .add = of->add,
                                 .M = of->M,
                                 .N = of->N,
                                 .K = of->K,
                                 .lda = of->lda,
                                 .ldb = of->ldb,
                                 .ldc = of->ldc,
                                 .alpha = alpha};
    mics_cuda_matmul(at, &gemm, (char *)at->workspace + before, at->workspace_bytes - before);
}

static void multiply(const mics_op_call *call, mics_gemm_spec gemm)
{
    run_gemm(call, &gemm, 1);
}

static void multiply_scaled(const mics_op_call *call, mics_gemm_spec gemm)
{
    run_gemm(call, &gemm, call->shape.op->lora.scale);
}

static void copy(const mics_op_call *call, void *to, const void *from)
{
    const mics_device *device = call->at->device;
    device->ops->copy(device->ctx, call->at->stream, to, from,
                      (size_t)(call->shape.N * call->shape.out) *
                          mics_dtype_bytes(call->at->dtype));
}

static void accumulate(const mics_op_call *call, void *to, const void *from)
{
    mics_cuda_accumulate(call->at, to, from, call->shape.N * call->shape.out);
}

static mics_lora_device device_of(const mics_op_call *call)
{
    return (mics_lora_device){.elem_bytes = (int64_t)mics_dtype_bytes(call->at->dtype),
                              .dropout = &mics_cuda_dropout_kernels,
                              .multiply = multiply,
                              .multiply_scaled = multiply_scaled,
                              .copy = copy,
                              .accumulate = accumulate};
}

void mics_cuda_lora_add(const mics_op_call *lora)
{
    const mics_lora_device device = device_of(lora);
    mics_lora_add(&device, lora);
}

static void forward(const mics_op_call *call)
{
    const mics_lora_device device = device_of(call);
    mics_lora_forward(&device, call);
}

static void backward(const mics_op_call *call)
{
    const mics_lora_device device = device_of(call);
    mics_lora_backward(&device, call);
}

const mics_op_kernels mics_cuda_lora_kernels = {.forward = forward, .backward = backward};
