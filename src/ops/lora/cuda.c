// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The passes by GEMMs of the library, which scales a sum before it rounds it, and by the masks of
// dropout/cuda.cu. Calls of a stream run in order, so GEMMs share a workspace.
#include "ops/common/cuda_ops.h"
#include "ops/common/matmul_cuda.h"
#include "ops/lora/passes.h"

static void multiply(const mics_op_call *call, mics_gemm_spec of, bool scaled)
{
    const mics_exec *at = call->at;
    const int64_t space =
        mics_lora_space_of(&call->shape, (int64_t)mics_dtype_bytes(at->dtype), false).gemm;
    const size_t before = (size_t)space * sizeof(float);
    mics_cuda_gemm gemm = {.a = of.a, .b = of.b, .c = of.c};
    gemm.alpha = scaled ? call->shape.op->lora.scale : 1;
    gemm.transpose_a = of.transpose_a;
    gemm.transpose_b = of.transpose_b;
    gemm.add = of.add;
    gemm.M = of.M;
    gemm.N = of.N;
    gemm.K = of.K;
    gemm.lda = of.lda;
    gemm.ldb = of.ldb;
    gemm.ldc = of.ldc;
    mics_cuda_matmul(at, &gemm, (char *)at->workspace + before, at->workspace_bytes - before);
}

static void copy(const mics_op_call *call, void *to, const void *from, bool add)
{
    const mics_device *device = call->at->device;
    const int64_t elems = call->shape.N * call->shape.out;
    if (add)
        mics_cuda_accumulate(call->at, to, from, elems);
    else
        device->ops->copy(device->ctx, call->at->stream, to, from,
                          (size_t)elems * mics_dtype_bytes(call->at->dtype));
}

static mics_lora_device device_of(const mics_op_call *call)
{
    return (mics_lora_device){(int64_t)mics_dtype_bytes(call->at->dtype), false,
                              &mics_cuda_dropout_kernels, multiply, copy};
}

void mics_cuda_lora_add(const mics_op_call *lora)
{
    const mics_lora_device device = device_of(lora);
    mics_lora_add(&device, lora);
}

static void forward(const mics_op_call *call)
{
    copy(call, call->out, call->in[0], false);
    mics_cuda_lora_add(call);
}

static void backward(const mics_op_call *call)
{
    const mics_lora_device device = device_of(call);
    mics_lora_backward(&device, call);
}

const mics_op_kernels mics_cuda_lora_kernels = {.forward = forward, .backward = backward};
