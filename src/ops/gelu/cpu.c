// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The tanh form: gelu(x) = x s(2u), with s(z) = 1 / (1 + e^-z) and u = sqrt(2/pi) (x + 0.044715
// x^3), because (1 + tanh u) / 2 = s(2u). The exact form: x (1 + erf(x / sqrt 2)) / 2.
#include "ops/common/kernels_isa.h"
#include "ops/common/vector_math.h"

static const float TWO_SQRT_2_PI = 1.595769121605731F; // 2 sqrt(2/pi)
static const float CUBIC = 0.044715F;
// Beyond, s(2u) is 0 or 1 in fp32; the cube of a larger |x| could overflow.
static const float FORWARD_LIMIT = 11.0F;
// Here e^-2u is still finite (8.9e37), and the derivative is 0 or 1 to within 1e-36.
static const float BACKWARD_LIMIT = 10.0F;

static inline float limited(float x, float limit)
{
    float in = x > limit ? limit : x; // NaN stays
    return in < -limit ? -limit : in;
}

// e^-2u
static inline float exp_minus_2u(float x)
{
    return mics_exp(-TWO_SQRT_2_PI * x * (1.0F + CUBIC * x * x));
}

// s + x s (1 - s) (2u)', with 1 - s = e^-2u s, which does not cancel.
static inline float derivative(float x)
{
    float in = limited(x, BACKWARD_LIMIT);
    float e = exp_minus_2u(in);
    float s = 1.0F / (1.0F + e);
    return s + in * s * (e * s) * TWO_SQRT_2_PI * (1.0F + 3.0F * CUBIC * in * in);
}

// ---- exact: x P(x), P the normal distribution; e = e^(-x^2 / 2) ----

static inline float normal_below(float x, float e)
{
    const float tail = mics_normal_tail(x, e);
    return x > 0 ? 1.0F - tail : tail;
}

// P + x P'; beyond 14, P' is 0 in fp32.
static inline float derivative_exact(float x)
{
    const float in = limited(x, 14.0F), one_over_root_2_pi = 0.398942280F;
    const float e = mics_exp(-0.5F * in * in);
    return normal_below(in, e) + in * e * one_over_root_2_pi;
}

// ---- both ----

static void forward_block(mics_elem *y, const mics_elem *x, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        const float in = mics_load(x[i]);
        y[i] = mics_store(in / (1.0F + exp_minus_2u(limited(in, FORWARD_LIMIT))));
    }
}

static void forward_exact(mics_elem *y, const mics_elem *x, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i) {
        const float in = mics_load(x[i]);
        y[i] = mics_store(in * normal_below(in, mics_exp(-0.5F * in * in)));
    }
}

static void forward(const mics_op_call *call)
{
    const int64_t elems = call->shape.N * call->shape.out;
    const bool exact = call->shape.op->exact;
    const mics_elem *x = call->in[0];
    mics_elem *y = call->out;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        int64_t size = elems - begin < MICS_OP_BLOCK ? elems - begin : MICS_OP_BLOCK;
        if (exact)
            forward_exact(y + begin, x + begin, size);
        else
            forward_block(y + begin, x + begin, size);
    }
}

static void backward_block(mics_elem *dx, const mics_elem *dy, const mics_elem *x, int64_t elems,
                           bool add_dx)
{
    if (add_dx) {
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            dx[i] = mics_store(mics_load(dx[i]) + mics_load(dy[i]) * derivative(mics_load(x[i])));
    } else {
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            dx[i] = mics_store(mics_load(dy[i]) * derivative(mics_load(x[i])));
    }
}

static void backward_exact(mics_elem *dx, const mics_elem *dy, const mics_elem *x, int64_t elems,
                           bool add_dx)
{
    if (add_dx) {
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            dx[i] =
                mics_store(mics_load(dx[i]) + mics_load(dy[i]) * derivative_exact(mics_load(x[i])));
    } else {
#pragma omp simd
        for (int64_t i = 0; i < elems; ++i)
            dx[i] = mics_store(mics_load(dy[i]) * derivative_exact(mics_load(x[i])));
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t elems = call->shape.N * call->shape.out;
    const bool exact = call->shape.op->exact;
    const mics_elem *dy = call->dout, *x = call->in[0];
    mics_elem *dx = call->din;
#pragma omp parallel for if (elems >= MICS_OP_PARALLEL)
    for (int64_t begin = 0; begin < elems; begin += MICS_OP_BLOCK) {
        int64_t size = elems - begin < MICS_OP_BLOCK ? elems - begin : MICS_OP_BLOCK;
        if (exact)
            backward_exact(dx + begin, dy + begin, x + begin, size, call->add_din);
        else
            backward_block(dx + begin, dy + begin, x + begin, size, call->add_din);
    }
}

const mics_op_kernels MICS_OP(gelu_kernels) = {.forward = forward, .backward = backward};
