// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Each token times the weights of the experts that it goes to. in: x (I), the router's weights (k),
// of which only the routes are read; weight: (O, I), of each expert; out: (k * O), the N * k rows of all
// tokens sorted by expert.
#include "ops/experts/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_experts_check(s));
    *out_out = s->params[0][0] * s->op->experts.chosen;
    *stats_out = 0;
    return mics_op_check(s, "inputs of the weight", s->params[0][1], s->in[0]);
}

static int64_t outputs_of(const mics_op_shape *s)
{
    return s->out / s->op->experts.chosen;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    return mics_experts_cost(s, s->in[0], outputs_of(s), s->in[0]);
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    return mics_experts_works(s, pass, s->in[0], outputs_of(s), works);
}

static double model_flops(const mics_op_shape *s)
{
    return mics_experts_model_flops(s, s->in[0], outputs_of(s));
}

const mics_op_def mics_op_def_experts_in = {.name = "experts_in",
                                            .inputs = 2,
                                            .params_read_in = true,
                                            .backward_adds = true,
                                            MICS_EXPERTS_GEMM};
