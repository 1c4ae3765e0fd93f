// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/common/kernels_isa.h"

static void forward(const mics_op_call *call)
{
    const int64_t elems = call->shape.N * call->shape.out;
    if (call->shape.op->wide)
        MICS_ISA_OP(add)(call->out, call->in[0], call->in[1], elems);
    else
        MICS_OP(add)(call->out, call->in[0], call->in[1], elems);
}

const mics_op_kernels MICS_OP(add_kernels) = {.forward = forward};
