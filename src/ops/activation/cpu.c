// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// relu(x) = max(x, 0), of slope 0 at 0; silu(x) = x s(x), with s(x) = 1 / (1 + e^-x). NaN stays.
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"

// Below, s is 0 to within 2e-38; e^-x is still finite (6.1e37).
static const float SILU_LOWEST = -87.0F;

static inline float value_at(float x, bool relu)
{
    if (relu)
        return x < 0 ? 0.0F : x;
    return x / (1.0F + mics_exp(-(x < SILU_LOWEST ? SILU_LOWEST : x)));
}

// Of silu: s (1 + x (1 - s)), with 1 - s = e^-x s, which does not cancel.
static inline float slope_at(float x, bool relu)
{
    if (relu)
        return x <= 0 ? 0.0F : 1.0F;
    const float in = x < SILU_LOWEST ? SILU_LOWEST : x;
    const float e = mics_exp(-in), s = 1.0F / (1.0F + e);
    return s * (1.0F + in * (e * s));
}

// Each call has constant flags: the compiler makes a loop of its own for each.
static inline void forward_block(mics_elem *y, const mics_elem *x, int64_t elems, bool relu)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        y[i] = mics_store(value_at(mics_load(x[i]), relu));
}

static void forward(const mics_op_call *call)
{
    const int64_t elems = call->shape.N * call->shape.out;
    const bool relu = call->shape.op->activation == MICS_ACTIVATION_RELU;
    const mics_elem *x = call->in[0];
    mics_elem *y = call->out;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        const int64_t size = elems - begin < MICS_OP_BLOCK ? elems - begin : MICS_OP_BLOCK;
        if (relu)
            forward_block(y + begin, x + begin, size, true);
        else
            forward_block(y + begin, x + begin, size, false);
    }
}

static inline void backward_block(mics_elem *dx, const mics_elem *dy, const mics_elem *x,
                                  int64_t elems, bool relu, bool add_dx)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        const float own = mics_load(dy[i]) * slope_at(mics_load(x[i]), relu);
        dx[i] = mics_store(add_dx ? mics_load(dx[i]) + own : own);
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t elems = call->shape.N * call->shape.out;
    const bool relu = call->shape.op->activation == MICS_ACTIVATION_RELU, add = call->add_din;
    const mics_elem *dy = call->dout, *x = call->in[0];
    mics_elem *dx = call->din;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        const int64_t size = elems - begin < MICS_OP_BLOCK ? elems - begin : MICS_OP_BLOCK;
        if (relu && add)
            backward_block(dx + begin, dy + begin, x + begin, size, true, true);
        else if (relu)
            backward_block(dx + begin, dy + begin, x + begin, size, true, false);
        else if (add)
            backward_block(dx + begin, dy + begin, x + begin, size, false, true);
        else
            backward_block(dx + begin, dy + begin, x + begin, size, false, false);
    }
}

const mics_op_kernels MICS_OP(activation_kernels) = {.forward = forward, .backward = backward};
