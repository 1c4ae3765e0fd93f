// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows are multiplied expert by expert; then each token adds up its own.
#include "ops/common/decode.h"
#include "ops/common/experts_isa.h"

static experts_gemm gemm_of(const mics_op_call *call, const experts_space *space)
{
    const mics_experts e = call->shape.op->experts;
    return (experts_gemm){.at = call->at,
                          .space = space,
                          .count = e.count,
                          .I = call->shape.in[0] / e.chosen,
                          .O = call->shape.out,
                          .stride = call->shape.expert_elems,
                          .weight = call->params[0]};
}

static void forward(const mics_op_call *call)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t N = call->shape.N, O = call->shape.out;
    const experts_space space = experts_space_of(call, O);
    const experts_gemm gemm = gemm_of(call, &space);
    const mics_elem *rows = space.rows, *weights = call->in[1];
    mics_elem *y = call->out;
    experts_forward(&gemm, space.rows, call->in[0]);
#pragma omp parallel for if (N * O >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const int32_t *from = mics_route_rows(call->routes, e, n);
        const mics_elem *weights_k = weights + n * e.chosen;
#pragma omp simd
        for (int64_t o = 0; o < O; ++o) {
            float sum = 0;
            for (int32_t j = 0; j < e.chosen; ++j)
                sum += mics_load(weights_k[j]) * mics_load(rows[from[j] * O + o]);
            y[n * O + o] = mics_store(sum);
        }
    }
}

static void scale_row(mics_elem *row, const mics_elem *from, float by, int64_t elems)
{
#pragma omp simd
    for (int64_t i = 0; i < elems; ++i)
        row[i] = mics_store(mics_load(from[i]) * by);
}

static float dot(const mics_elem *a, const mics_elem *b, int64_t elems)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < elems; ++i)
        sum += mics_load(a[i]) * mics_load(b[i]);
    return sum;
}

// The gradient of the router's weight of an expert is x times what the output's gradient gives behind
// the expert's weight, which the rows of dx hold; or, where no dx is wanted, the output's gradient
// times what x gives, which the rows hold. Those of dx are then multiplied by the router's weight, and
// the rows get the output's gradient times it.
static void weigh(const mics_op_call *call, const experts_gemm *g)
{
    const mics_experts e = call->shape.op->experts;
    const int64_t N = call->shape.N;
    const mics_elem *x = call->in[0], *weights = call->in[1], *dy = call->dout;
    mics_elem *dx = call->din, *dweights = call->din_second;
#pragma omp parallel for if (N * g->I >= MICS_OP_PARALLEL)
    for (int64_t n = 0; n < N; ++n) {
        const int32_t *rows = mics_route_rows(call->routes, e, n);
        for (int32_t j = 0; j < e.chosen; ++j) {
            const int64_t at = n * e.chosen + j, row = rows[j];
            const float weight = mics_load(weights[at]);
            mics_elem *own = g->space->rows + row * g->O;
            if (dweights)
                dweights[at] = mics_store(dx ? dot(dx + row * g->I, x + row * g->I, g->I)
                                             : dot(dy + n * g->O, own, g->O));
            if (dx)
                scale_row(dx + row * g->I, dx + row * g->I, weight, g->I);
            if (call->dparams[0])
                scale_row(own, dy + n * g->O, weight, g->O);
        }
    }
}

static void backward(const mics_op_call *call)
{
    const int64_t O = call->shape.out;
    const experts_space space = experts_space_of(call, O);
    const experts_gemm gemm = gemm_of(call, &space);
    if (call->din != NULL) {
        experts_scatter(call, space.rows, call->dout, O);
        experts_input_gradient(&gemm, call->din, space.rows);
    } else if (call->din_second != NULL) {
        experts_forward(&gemm, space.rows, call->in[0]);
    }
    weigh(call, &gemm);
    if (call->dparams[0] != NULL)
        experts_weight_gradient(&gemm, call->dparams[0], space.rows, call->in[0],
                                call->add_params[0]);
}

const mics_op_kernels MICS_OP(experts_out_kernels) = {
    .forward = forward,
    .backward = backward,
    .decode = MICS_ELEM_FP32 ? MICS_ISA_OP(experts_out_decode) : NULL,
    .decode_divides = true};
