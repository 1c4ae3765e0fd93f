// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// RMSNorm of each query and each key head (Qwen3 technical report, 2025, arXiv:2505.09388). in and
// out: q, k, v side by side; v passes. params: weight of queries (D), weight of keys (D); stats:
// the reciprocal root of each query and key head.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check_heads(s));
    MICS_TRY(mics_op_check(s, "weight of queries", s->params[0][0], s->heads.dim));
    MICS_TRY(mics_op_check(s, "weight of keys", s->params[1][0], s->heads.dim));
    *out_out = s->in[0];
    *stats_out = s->heads.query + s->heads.key_value;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double normed =
        (double)s->N * (double)((s->heads.query + s->heads.key_value) * s->heads.dim);
    mics_op_cost cost = mics_cost_moved(s);
    cost.flops_forward = 4 * normed;
    cost.flops_backward = (s->in_fixed[0] ? 0 : 7) * normed;
    cost.flops_backward +=
        s->params_fixed[0] ? 0 : 3 * (double)(s->N * s->heads.query * s->heads.dim);
    cost.flops_backward +=
        s->params_fixed[1] ? 0 : 3 * (double)(s->N * s->heads.key_value * s->heads.dim);
    cost.workspace_backward = mics_norm_sums(s, 2 * s->heads.dim);
    return cost;
}

// Separate kernels, in bytes a number of bf16: a copy in fp32 (2 + 4), square (8), mean (4), times the
// root (8), back (4 + 2), times the weight (4); backward of each, and what they are multiplied with.
const mics_op_def mics_op_def_head_norm = {.name = "head_norm",
                                           .inputs = 1,
                                           .params = 2,
                                           .params_needed = 2,
                                           .param_dims = {1, 1},
                                           .backward_reads_in = {true, true},
                                           .backward_reads_params = true,
                                           .backward_in_place = true,
                                           .backward_adds = true,
                                           .cut = MICS_CUT_WIDTH,
                                           .make = make,
                                           .separate_forward = 36.0 / 4,
                                           .separate_backward = 64.0 / 8,
                                           .cost = cost_of};
