// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm (Zhang and Sennrich, 2019, arXiv:1910.07467): y = x / sqrt(mean of x^2 + eps) * weight.
// params: weight (C); stats: the reciprocal root of each row.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check(s, "weight", s->params[0][0], s->in[0]));
    *out_out = s->in[0];
    *stats_out = 1;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.flops_forward = 4 * (double)s->N * (double)s->in[0];
    const int32_t each = (s->in_fixed[0] ? 0 : 7) + (s->params_fixed[0] ? 0 : 3);
    cost.flops_backward = each * (double)s->N * (double)s->in[0];
    cost.workspace_backward = mics_norm_sums(s, s->in[0]);
    return cost;
}

// Separate kernels, in bytes a number of bf16: a copy in fp32 (2 + 4), square (8), mean (4), times the
// root (8), back (4 + 2), times the weight (4); backward of each, and what they are multiplied with.
const mics_op_def mics_op_def_rmsnorm = {.name = "rmsnorm",
                                         .inputs = 1,
                                         .params = 1,
                                         .params_needed = 1,
                                         .param_dims = {1},
                                         .backward_reads_in = {true, true},
                                         .backward_reads_params = true,
                                         .backward_in_place = true,
                                         .backward_adds = true,
                                         .make = make,
                                         .separate_forward = 36.0 / 4,
                                         .separate_backward = 64.0 / 8,
                                         .cost = cost_of};
