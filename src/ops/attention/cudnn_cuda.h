// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN's graphs. Built where cuDNN's headers are (cudnn_cuda.c; else
// no_cudnn_cuda.c); its library is opened when it is first asked for, so the plugin runs
// without it.
#ifndef MICS_OP_ATTENTION_CUDNN_CUDA_H
#define MICS_OP_ATTENTION_CUDNN_CUDA_H

#include "ops/attention/attention_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mics_cuda_cudnn mics_cuda_cudnn;

/* Opens the library, on this thread's GPU.
 *
 * Returns: NULL where that is not possible; why stands in *why_not_out then (static).
 * Owns:    close with mics_cuda_cudnn_close.
 */
mics_cuda_cudnn *mics_cuda_cudnn_open(const char **why_not_out);
void mics_cuda_cudnn_close(mics_cuda_cudnn *cudnn); // NULL is allowed

/* Why a shape cannot run on cuDNN, forward and backward, in the place's workspace; "" when it can.
 * Prepares both graphs when it sees a shape first. */
const char *mics_cuda_cudnn_why_not(mics_cuda_cudnn *cudnn, const mics_exec *at,
                                    const mics_cuda_attention *a);

/* Enqueue what why_not said "" to. */
void mics_cuda_cudnn_forward(mics_cuda_cudnn *cudnn, const mics_exec *at,
                             const mics_cuda_attention *a);
void mics_cuda_cudnn_backward(mics_cuda_cudnn *cudnn, const mics_exec *at,
                              const mics_cuda_attention *a);

#ifdef __cplusplus
}
#endif
#endif
