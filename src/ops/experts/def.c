// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the descriptors of experts_in and experts_out share.
#include "ops/experts/def.h"
#include "mics/log.h"
#include "ops/gemm/def.h"
#include <math.h>

int64_t mics_experts_capacity(mics_experts experts, int64_t length, bool training)
{
    // What a factor in decimals is off by in binary must not add a row.
    static const double OFF = 1e-9;
    const double factor = training ? experts.capacity : experts.eval_capacity;
    if (factor <= 0)
        return length;
    const double rows = factor * (double)length * experts.chosen / experts.count;
    const double rounded = ceil(rows * (1 - OFF));
    if (rounded >= (double)length)
        return length;
    return mics_smaller(mics_larger((int64_t)rounded, experts.min_capacity), length);
}

int32_t mics_experts_travel_rows(mics_experts experts, int32_t ranks, int64_t length)
{
    const int64_t kept = experts.count / ranks;
    const int64_t capacity = mics_larger(mics_experts_capacity(experts, length, true),
                                         mics_experts_capacity(experts, length, false));
    // Of a sequence, in one block: no two of a token's experts are the same.
    const int64_t block =
        mics_smaller(length * mics_smaller(experts.chosen, kept), capacity * kept);
    int64_t rows = (block * ranks + length - 1) / length;
    while (rows * length % ranks != 0) // blocks are alike
        rows++;
    return (int32_t)rows;
}

mics_status mics_experts_check(const mics_op_shape *shape)
{
    const mics_experts e = shape->op->experts;
    if (e.chosen < 1 || e.chosen > e.count)
        return mics_fail(MICS_ERR_INVALID, "unit %s: a token cannot go to %d of %d experts",
                         shape->unit, (int)e.chosen, (int)e.count);
    if (shape->expert_elems < shape->params[0][0] * shape->params[0][1])
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: the weight of an op of experts must be of a unit of %d experts "
                         "(mics_model_experts)",
                         shape->unit, (int)e.count);
    if (shape->op->routes < 0)
        return mics_fail(
            MICS_ERR_INVALID,
            "unit %s: the second input of an op of experts must be made by a router of "
            "%d experts, with the same capacities",
            shape->unit, (int)e.count);
    return mics_op_check(shape, "weights of the router", shape->in[1], e.chosen);
}

// Rows that all experts take at most of a batch of training.
static int64_t taken_of(const mics_op_shape *s)
{
    const mics_experts e = s->op->experts;
    const int64_t capacity = mics_experts_capacity(e, s->T, true);
    return mics_smaller(s->N * e.chosen, s->B * capacity * e.count);
}

double mics_experts_model_flops(const mics_op_shape *s, int64_t I, int64_t O)
{
    return 2.0 * (1 + mics_gradients(s)) * (double)I * (double)O * (double)taken_of(s) /
           (double)s->N;
}

// Whether backward has a GEMM beside the weight's: the gradient of the router's weights takes one too,
// the input's or forward's again.
static bool has_another(const mics_op_shape *s)
{
    const bool weighs = mics_op_def_get(s->op->kind)->backward_second && !s->in_fixed[1];
    return weighs || !s->in_fixed[0];
}

mics_op_cost mics_experts_cost(const mics_op_shape *s, int64_t I, int64_t O, int64_t width)
{
    const mics_experts e = s->op->experts;
    const int64_t rows = s->N * e.chosen, taken = taken_of(s);
    const int32_t gemms = has_another(s) + !s->params_fixed[0];
    mics_op_cost cost = mics_cost_gemm((double)taken, (double)I, (double)O, gemms);
    const double others = 4 * (double)(mics_smaller(e.count, taken) - 1) * (double)I * (double)O;
    cost.bytes_forward += others;
    cost.bytes_backward += gemms * others;
    if (s->accelerator_bytes > 0) {
        cost.workspace_forward = cost.workspace_backward =
            mics_experts_route_floats(e, rows) +
            mics_part_floats(rows * width * s->accelerator_bytes);
        return cost;
    }
    cost.workspace_forward =
        mics_experts_first_floats(e) + mics_experts_rows_floats(rows, width, s->cpu_bf16 ? 2 : 4);
    if (s->cpu_bf16)
        cost.workspace_forward += mics_larger(mics_gemm_floats_any_bf16(rows, O, I),
                                              mics_larger(mics_gemm_floats_any_bf16(rows, I, O),
                                                          mics_gemm_floats_any_bf16(O, I, rows)));
    cost.workspace_backward = cost.workspace_forward;
    return cost;
}

int32_t mics_experts_works(const mics_op_shape *s, const mics_op_pass *pass, int64_t I, int64_t O,
                           mics_op_work *works)
{
    const int64_t taken = taken_of(s), kept = mics_experts_kept(s->op);
    const int64_t experts = mics_smaller(kept, taken), rows = taken / experts;
    int32_t count = 0;
    if (!pass->backward)
        works[count++] = mics_work_gemm(rows, O, I);
    if (pass->backward && has_another(s))
        works[count++] = mics_work_gemm(rows, I, O);
    if (pass->backward && !s->params_fixed[0])
        works[count++] = mics_work_gemm(I, O, rows);
    for (int32_t i = 0; i < count; i++)
        works[i].times = experts;
    return count;
}
