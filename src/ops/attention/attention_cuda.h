// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The ways in which attention runs on a GPU, and which is taken. Shapes and meaning:
// ops/attention/def.c.
#ifndef MICS_OP_ATTENTION_CUDA_H
#define MICS_OP_ATTENTION_CUDA_H

#include "mics/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

// One attention, forward (y, lse are results) or backward (they are inputs, and dqkv is the
// result).
typedef struct mics_cuda_attention {
    int64_t B, T, H, D;
    const void *qkv_N3C;
    void *y_NC;
    float *lse_NH;
    const void *dy_NC;
    void *dqkv_N3C;
} mics_cuda_attention;

// OURS: the kernels of cuda.cu (2-byte types, D <= 256) and fp32.cu (the rest).
// CUDNN: cuDNN's graphs where it has them for a shape, else OURS; forward and backward of a shape
// always by the same.
typedef enum mics_cuda_attention_way {
    MICS_CUDA_ATTENTION_OURS,
    MICS_CUDA_ATTENTION_CUDNN
} mics_cuda_attention_way;

/* Chooses for a device, before its first attention; OURS unless told, which is so until
 * bench/gpu/attention_speed.c, which times both, has been run on a chip. */
void mics_cuda_attention_choose(mics_device *device, mics_cuda_attention_way way);

/* Whether cuDNN would be used for a shape: "" when so, else why not. Static or the device's; never
 * NULL. */
const char *mics_cuda_attention_why_not_cudnn(const mics_exec *at, const mics_cuda_attention *a);

// ---- the ways ----

// Tiles on tensor cores (cuda.cu): bf16 and fp16, D <= 256. Backward takes B T H floats of
// workspace.
void mics_cuda_attention_tiles_forward(const mics_exec *at, const mics_cuda_attention *a);
void mics_cuda_attention_tiles_backward(const mics_exec *at, const mics_cuda_attention *a);
// Plain fp32 arithmetic (fp32.cu): any type, any D. Workspace as above.
void mics_cuda_attention_plain_forward(const mics_exec *at, const mics_cuda_attention *a);
void mics_cuda_attention_plain_backward(const mics_exec *at, const mics_cuda_attention *a);

#ifdef __cplusplus
}
#endif
#endif
