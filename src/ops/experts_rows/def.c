// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows that came, times the weights of their experts. in: rows (I), with tags or without; weight:
// (O, I), of each expert that the rank keeps; out: rows (O).
#include "ops/experts/def.h"
#include "mics/log.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const int64_t rows = s->op->travel_rows;
    *out_out = rows * s->params[0][0];
    *stats_out = 0;
    if (s->in[0] != rows * s->params[0][1] && s->in[0] != rows * (s->params[0][1] + 1))
        return mics_fail(MICS_ERR_INVALID, "unit %s: rows of another width than the weight's %lld",
                         s->unit, (long long)s->params[0][1]);
    return MICS_OK;
}

// On the average ranks get as many rows as they send.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_experts_cost(s, s->params[0][1], s->params[0][0], 0);
    if (s->accelerator_bytes > 0) {
        cost.workspace_forward = cost.workspace_backward = mics_experts_came_floats(s->op);
        return cost;
    }
    cost.workspace_forward += mics_experts_runs_floats(s->op);
    cost.workspace_backward += mics_experts_runs_floats(s->op);
    return cost;
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    return mics_experts_works(s, pass, s->params[0][1], s->params[0][0], works);
}

static double model_flops(const mics_op_shape *s)
{
    return mics_experts_model_flops(s, s->params[0][1], s->params[0][0]);
}

const mics_op_def mics_op_def_experts_rows = {
    .name = "experts_rows", .inputs = 1, .params_read_in = true, MICS_EXPERTS_GEMM};
