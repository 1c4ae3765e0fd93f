// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The ways in which attention runs on a GPU; cuda.c takes one. Shapes and meaning:
// ops/attention/def.c.
#pragma once

#include "ops/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// One attention, forward (y, lse are results) or backward (they are inputs, and dqkv is the
// result).
typedef struct mics_cuda_attention {
    int64_t B, T;
    mics_heads heads;
    const mics_op_call *call; // what its masks are drawn from, its window and segments
    const void *qkv_N3C;
    void *y_NC;
    float *lse_NH;
    const void *dy_NC;
    void *dqkv_N3C;
} mics_cuda_attention;

// Tiles on tensor cores (tiles_*.cu): bf16 and fp16, D <= 256. Backward takes B T H floats of
// workspace, H query heads.
void mics_cuda_attention_tiles_forward(const mics_exec *at, const mics_cuda_attention *a);
void mics_cuda_attention_tiles_backward(const mics_exec *at, const mics_cuda_attention *a);
// Plain fp32 arithmetic (fp32.cu): any type, any D. Workspace as above.
void mics_cuda_attention_plain_forward(const mics_exec *at, const mics_cuda_attention *a);
void mics_cuda_attention_plain_backward(const mics_exec *at, const mics_cuda_attention *a);

// ---- cuDNN (cudnn.c) ----

// mics_op_kernels.prepare and forget.
const char *mics_cuda_attention_prepare(const mics_exec *at, const mics_op_shape *shape);
void mics_cuda_attention_forget(mics_device *device);
// False where no plan is prepared for the call: nothing is done.
bool mics_cuda_attention_by_cudnn(const mics_exec *at, const mics_cuda_attention *a);

#ifdef __cplusplus
}
#endif
