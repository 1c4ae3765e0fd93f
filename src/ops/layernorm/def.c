// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// LayerNorm. params: weight (C), bias (C); stats: mean and reciprocal deviation of each row.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check(s, "weight", s->params[0][0], s->in[0]));
    MICS_TRY(mics_op_check(s, "bias", s->params[1][0], s->in[0]));
    *out_out = s->in[0];
    *stats_out = 2;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.flops_forward = 8 * (double)s->N * (double)s->in[0];
    const int32_t each =
        (s->in_fixed[0] ? 0 : 10) + (s->params_fixed[0] ? 0 : 3) + (s->params_fixed[1] ? 0 : 1);
    cost.flops_backward = each * (double)s->N * (double)s->in[0];
    cost.workspace_backward = mics_norm_sums(s, 2 * s->in[0]);
    return cost;
}

const mics_op_def mics_op_def_layernorm = {.name = "layernorm",
                                           .inputs = 1,
                                           .params = 2,
                                           .params_needed = 2,
                                           .param_dims = {1, 1},
                                           .backward_reads_in = {true, true},
                                           .backward_reads_params = true,
                                           .backward_in_place = true,
                                           .backward_adds = true,
                                           .make = make,
                                           .cost = cost_of};
