// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which kernels an attention runs on: our tiles on tensor cores, plain fp32, or cuDNN's where that
// is asked for and possible.
#include "ops/attention/attention_cuda.h"
#include "ops/attention/cudnn_cuda.h"
#include "ops/common/cuda_ops.h"
#include <stdlib.h>

enum { TILES_MAX_D = 256 };

// What is kept beside a device; nothing as long as it is to be ours.
typedef struct attention_part {
    mics_cuda_attention_way way;
    mics_cuda_cudnn *cudnn; // NULL where it cannot be had
    const char *why_not;    // then
} attention_part;

static void part_close(void *object)
{
    attention_part *part = object;
    mics_cuda_cudnn_close(part->cudnn);
    free(part);
}

static attention_part *part_of(const mics_device *device)
{
    return device->ops->part(device->ctx, MICS_DEVICE_PART_ATTENTION);
}

void mics_cuda_attention_choose(mics_device *device, mics_cuda_attention_way way)
{
    attention_part *part = part_of(device);
    if (!part && way == MICS_CUDA_ATTENTION_OURS)
        return;
    if (!part) {
        part = calloc(1, sizeof *part);
        if (!part) {
            device->ops->fail(device->ctx, "the choice of attention kernels: out of memory");
            return;
        }
        part->cudnn = mics_cuda_cudnn_open(&part->why_not);
        device->ops->set_part(device->ctx, MICS_DEVICE_PART_ATTENTION, part, part_close);
    }
    part->way = way;
}

const char *mics_cuda_attention_why_not_cudnn(const mics_op_place *at, const mics_cuda_attention *a)
{
    const attention_part *part = part_of(at->device);
    if (!part || part->way != MICS_CUDA_ATTENTION_CUDNN)
        return "not asked for";
    return part->cudnn ? mics_cuda_cudnn_why_not(part->cudnn, at, a) : part->why_not;
}

static mics_cuda_cudnn *cudnn_for(const mics_op_place *at, const mics_cuda_attention *a)
{
    const attention_part *part = part_of(at->device);
    if (!part || part->way != MICS_CUDA_ATTENTION_CUDNN || !part->cudnn ||
        mics_cuda_cudnn_why_not(part->cudnn, at, a)[0] != '\0')
        return NULL;
    return part->cudnn;
}

static bool on_tensor_cores(const mics_op_place *at, int64_t D)
{
    return at->dtype != MICS_DTYPE_FP32 && D <= TILES_MAX_D;
}

// delta, one fp32 number for each row of each head. What cuDNN takes is more, depends on its
// version, and is used only where the place has it: see mics_cuda_cudnn_why_not.
static size_t workspace_bytes(const mics_op_shape *shape, mics_dtype dtype)
{
    (void)dtype;
    return (size_t)(shape->N * shape->heads) * sizeof(float);
}

static mics_cuda_attention arguments(const mics_op_call *call)
{
    const mics_op_shape *s = &call->shape;
    return (mics_cuda_attention){.B = s->B,
                                 .T = s->T,
                                 .H = s->heads,
                                 .D = s->out / s->heads,
                                 .qkv_N3C = call->in[0],
                                 .y_NC = call->out,
                                 .lse_NH = call->stats,
                                 .dy_NC = call->dout,
                                 .dqkv_N3C = call->din};
}

static void forward(const mics_op_call *call)
{
    const mics_cuda_attention a = arguments(call);
    mics_cuda_cudnn *cudnn = cudnn_for(call->at, &a);
    if (cudnn)
        mics_cuda_cudnn_forward(cudnn, call->at, &a);
    else if (on_tensor_cores(call->at, a.D))
        mics_cuda_attention_tiles_forward(call->at, &a);
    else
        mics_cuda_attention_plain_forward(call->at, &a);
}

static void backward(const mics_op_call *call)
{
    const mics_cuda_attention a = arguments(call);
    mics_cuda_cudnn *cudnn = cudnn_for(call->at, &a);
    if (cudnn)
        mics_cuda_cudnn_backward(cudnn, call->at, &a);
    else if (on_tensor_cores(call->at, a.D))
        mics_cuda_attention_tiles_backward(call->at, &a);
    else
        mics_cuda_attention_plain_backward(call->at, &a);
}

const mics_op_kernels mics_cuda_attention_kernels = {
    .forward = forward, .backward = backward, .workspace_bytes = workspace_bytes};
