// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// cudnn_cuda.h where there is no cuDNN: it cannot be opened, so nothing else is called.
#include "ops/attention/cudnn_cuda.h"

mics_cuda_cudnn *mics_cuda_cudnn_open(const char **why_not_out)
{
    *why_not_out = "built without cuDNN";
    return NULL;
}

void mics_cuda_cudnn_close(mics_cuda_cudnn *cudnn)
{
    (void)cudnn;
}

const char *mics_cuda_cudnn_why_not(mics_cuda_cudnn *cudnn, const mics_exec *at,
                                    const mics_cuda_attention *a)
{
    (void)cudnn;
    (void)at;
    (void)a;
    return "built without cuDNN";
}

void mics_cuda_cudnn_forward(mics_cuda_cudnn *cudnn, const mics_exec *at,
                             const mics_cuda_attention *a)
{
    (void)cudnn;
    (void)at;
    (void)a;
}

void mics_cuda_cudnn_backward(mics_cuda_cudnn *cudnn, const mics_exec *at,
                              const mics_cuda_attention *a)
{
    (void)cudnn;
    (void)at;
    (void)a;
}
