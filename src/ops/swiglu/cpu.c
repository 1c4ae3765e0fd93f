// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = g s(g) u, with s(g) = 1 / (1 + e^-g); gate g and up u side by side in a row of 2 I.
#include "ops/common/experts_travel.h"
#include "ops/common/vector_math.h"

// Rows: of tokens, or of tokens at their experts.
static int64_t rows_of(const mics_op_call *call)
{
    const mics_op *op = call->shape.op;
    if (op->expert_ranks > 0)
        return call->shape.N * op->travel_rows;
    return call->shape.N * (op->experts.count > 0 ? op->experts.chosen : 1);
}

// Rows [first, end) of width I.
typedef void some_rows(const mics_op_call *call, int64_t I, int64_t first, int64_t end);

// All rows; of those that travelled, the ones that hold something.
static void for_rows(const mics_op_call *call, some_rows *rows)
{
    const mics_op *op = call->shape.op;
    const int64_t all = rows_of(call), I = call->shape.N * call->shape.out / all;
    if (op->expert_ranks == 0)
        rows(call, I, 0, all);
    for (int32_t b = 0; b < op->expert_ranks; ++b) {
        const int64_t first = all / op->expert_ranks * b;
        rows(call, I, first, first + experts_rows_in(call, b));
    }
}

// Below, s is 0 to within 2e-38; e^-g is still finite (6.1e37).
static const float LOWEST_GATE = -87.0F;

static void forward_rows(const mics_op_call *call, int64_t I, int64_t first, int64_t end)
{
    const mics_elem *x = call->in[0];
    mics_elem *y = call->out;
#pragma omp parallel for if ((end - first) * I >= MICS_OP_PARALLEL)
    for (int64_t n = first; n < end; ++n) {
        const mics_elem *gate_I = x + 2 * n * I, *up_I = gate_I + I;
        mics_elem *y_I = y + n * I;
#pragma omp simd
        for (int64_t i = 0; i < I; ++i) {
            const float gate = mics_load(gate_I[i]);
            y_I[i] = mics_store(gate / (1.0F + mics_exp(-gate)) * mics_load(up_I[i]));
        }
    }
}

static void forward(const mics_op_call *call)
{
    for_rows(call, forward_rows);
}

// Of one gate: g s and its derivative s (1 + g (1 - s)), with 1 - s = e^-g s, which does not
// cancel.
typedef struct slope {
    float value, derivative;
} slope;

static inline slope slope_at(float gate)
{
    const float g = gate < LOWEST_GATE ? LOWEST_GATE : gate; // NaN stays
    const float e = mics_exp(-g), s = 1.0F / (1.0F + e);
    return (slope){g * s, s * (1.0F + g * (e * s))};
}

static void backward_row(mics_elem *dx_2I, const mics_elem *dy_I, const mics_elem *x_2I, int64_t I,
                         bool add)
{
    mics_elem *dgate_I = dx_2I, *dup_I = dx_2I + I;
    const mics_elem *gate_I = x_2I, *up_I = x_2I + I;
    if (add) {
#pragma omp simd
        for (int64_t i = 0; i < I; ++i) {
            const slope at = slope_at(mics_load(gate_I[i]));
            const float dy = mics_load(dy_I[i]), up = mics_load(up_I[i]);
            dgate_I[i] = mics_store(mics_load(dgate_I[i]) + dy * up * at.derivative);
            dup_I[i] = mics_store(mics_load(dup_I[i]) + dy * at.value);
        }
    } else {
#pragma omp simd
        for (int64_t i = 0; i < I; ++i) {
            const slope at = slope_at(mics_load(gate_I[i]));
            const float dy = mics_load(dy_I[i]), up = mics_load(up_I[i]);
            dgate_I[i] = mics_store(dy * up * at.derivative);
            dup_I[i] = mics_store(dy * at.value);
        }
    }
}

static void backward_rows(const mics_op_call *call, int64_t I, int64_t first, int64_t end)
{
    const mics_elem *dy = call->dout, *x = call->in[0];
    mics_elem *dx = call->din;
#pragma omp parallel for if ((end - first) * I >= MICS_OP_PARALLEL)
    for (int64_t n = first; n < end; ++n)
        backward_row(dx + 2 * n * I, dy + n * I, x + 2 * n * I, I, call->add_din);
}

static void backward(const mics_op_call *call)
{
    for_rows(call, backward_rows);
}

const mics_op_kernels MICS_OP(swiglu_kernels) = {.forward = forward, .backward = backward};
