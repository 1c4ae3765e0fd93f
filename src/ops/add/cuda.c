// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/common/cuda_ops.h"

static void forward(const mics_op_call *call)
{
    mics_exec at = *call->at;
    if (call->shape.op->wide)
        at.dtype = MICS_DTYPE_FP32;
    mics_cuda_add(&at, call->out, call->in[0], call->in[1], call->shape.N * call->shape.out);
}

const mics_op_kernels mics_cuda_add_kernels = {.forward = forward};
