// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention on a GPU: by cuDNN, where a plan of it is prepared; on tensor cores (tiles_*.cu: bf16 and
// fp16, D <= 256), or in plain fp32 arithmetic (fp32.cu: any type, any D).
#include "ops/attention/attention_cuda.h"
#include "ops/common/cuda_ops.h"

enum { TILES_MAX_D = 256 };

static mics_cuda_attention arguments(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    return (mics_cuda_attention){.B = s->B,
                                 .T = s->T,
                                 .heads = s->heads,
                                 .call = call,
                                 .qkv_N3C = call->in[0],
                                 .y_NC = call->out,
                                 .lse_NH = call->stats,
                                 .dy_NC = call->dout,
                                 .dqkv_N3C = call->din};
}

static bool on_tensor_cores(const mics_exec *at, int64_t D)
{
    return at->dtype != MICS_DTYPE_FP32 && D <= TILES_MAX_D;
}

static void forward(const mics_op_call *call)
{
    const mics_cuda_attention a = arguments(call);
    if (mics_cuda_attention_by_cudnn(call->at, &a))
        return;
    if (on_tensor_cores(call->at, a.heads.dim))
        mics_cuda_attention_tiles_forward(call->at, &a);
    else
        mics_cuda_attention_plain_forward(call->at, &a);
}

static void backward(const mics_op_call *call)
{
    const mics_cuda_attention a = arguments(call);
    if (mics_cuda_attention_by_cudnn(call->at, &a))
        return;
    if (on_tensor_cores(call->at, a.heads.dim))
        mics_cuda_attention_tiles_backward(call->at, &a);
    else
        mics_cuda_attention_plain_backward(call->at, &a);
}

const mics_op_kernels mics_cuda_attention_kernels = {.forward = forward,
                                                     .backward = backward,
                                                     .prepare = mics_cuda_attention_prepare,
                                                     .forget = mics_cuda_attention_forget};
