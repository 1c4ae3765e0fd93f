// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "ops/common/kernels_isa.h"

// to (+)= from, by blocks.
static void widen(const mics_op_call *call, float *to, const mics_elem *from, bool add)
{
    const int64_t elems = call->shape.N * call->shape.out;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        const int64_t end = elems - begin < MICS_OP_BLOCK ? elems : begin + MICS_OP_BLOCK;
        if (add) {
#pragma omp simd
            for (int64_t i = begin; i < end; ++i)
                to[i] += mics_load(from[i]);
        } else {
#pragma omp simd
            for (int64_t i = begin; i < end; ++i)
                to[i] = mics_load(from[i]);
        }
    }
}

static void narrow(const mics_op_call *call, mics_elem *to, const float *from, bool add)
{
    const int64_t elems = call->shape.N * call->shape.out;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        const int64_t end = elems - begin < MICS_OP_BLOCK ? elems : begin + MICS_OP_BLOCK;
        if (add) {
#pragma omp simd
            for (int64_t i = begin; i < end; ++i)
                to[i] = mics_store(mics_load(to[i]) + from[i]);
        } else {
#pragma omp simd
            for (int64_t i = begin; i < end; ++i)
                to[i] = mics_store(from[i]);
        }
    }
}

static void forward(const mics_op_call *call)
{
    if (call->shape.op->wide)
        widen(call, call->out, call->in[0], false);
    else
        narrow(call, call->out, call->in[0], false);
}

static void backward(const mics_op_call *call)
{
    if (call->shape.op->wide)
        narrow(call, call->din, call->dout, call->add_din);
    else
        widen(call, call->din, call->dout, call->add_din);
}

const mics_op_kernels MICS_OP(cast_kernels) = {.forward = forward, .backward = backward};
