// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which experts each token goes to: those of the k largest scores x W^T; of equal ones the first.
// in: x (C); weight: (experts, C); out: weights (k), the softmax over all experts of those chosen,
// which sums to 1 where the op says so. Scores and probabilities are fp32. Backward adds the
// gradients of the losses of mics_router_spec.
#include "ops/router/def.h"
#include "mics/log.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const mics_experts e = s->op->experts;
    if (e.chosen < 1 || e.chosen > e.count)
        return mics_fail(MICS_ERR_INVALID, "unit %s: a token cannot go to %d of %d experts",
                         s->unit, (int)e.chosen, (int)e.count);
    MICS_TRY(mics_op_check(s, "inputs of the weight", s->params[0][1], s->in[0]));
    *out_out = e.chosen;
    *stats_out = mics_route_floats(e);
    return mics_op_check(s, "experts of the weight", s->params[0][0], e.count);
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const mics_experts e = s->op->experts;
    mics_op_cost cost = mics_cost_gemm((double)s->N, (double)s->in[0], (double)e.count);
    cost.workspace_forward = e.count; // rows before an expert's
    cost.workspace_backward = s->N * e.count + (int64_t)e.count * s->in[0];
    if (s->accelerator_bytes > 0) {
        cost.workspace_forward =
            mics_part_floats(mics_router_places(e, s->N) * e.count * (int64_t)sizeof(int32_t));
        cost.workspace_backward = mics_router_space_of(e, s->B, s->T, s->in[0]).end;
    }
    return cost;
}

static double model_flops(const mics_op_shape *s)
{
    return 6.0 * (double)s->in[0] * (double)s->op->experts.count;
}

const mics_op_def mics_op_def_router = {.name = "router",
                                        .inputs = 1,
                                        .params = 1,
                                        .params_needed = 1,
                                        .param_dims = {2},
                                        .backward_reads_in = true,
                                        .backward_reads_params = true,
                                        .backward_adds = true,
                                        .make = make,
                                        .cost = cost_of,
                                        .model_flops = model_flops};
