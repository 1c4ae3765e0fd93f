// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a token's experts give, times the router's weights, as one sum. in: rows sorted by expert
// (k * I), the router's weights (k); weight: (O, I), of each expert; out: (O).
#include "ops/experts/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_experts_check(s));
    *out_out = s->params[0][0];
    *stats_out = 0;
    return mics_op_check(s, "inputs of the weight, of each of a token's experts",
                         s->params[0][1] * s->op->experts.chosen, s->in[0]);
}

static int64_t inputs_of(const mics_op_shape *s)
{
    return s->in[0] / s->op->experts.chosen;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    return mics_experts_cost(s, inputs_of(s), s->out, s->out);
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    return mics_experts_works(s, pass, inputs_of(s), s->out, works);
}

static double model_flops(const mics_op_shape *s)
{
    return mics_experts_model_flops(s, inputs_of(s), s->out);
}

const mics_op_def mics_op_def_experts_out = {
    .name = "experts_out", .inputs = 2, .backward_second = true, MICS_EXPERTS_GEMM};
