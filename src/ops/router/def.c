// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which experts each token goes to: those of the k largest scores x W^T; of equal ones the first.
// in: x (C); weight: (experts, C); out: weights (k), the softmax over all experts of those chosen,
// which sums to 1 where the op says so; 0 where the row is dropped. Scores and probabilities are
// fp32. Backward adds the gradients of the losses of mics_router_spec. Tokens of no segment (padding)
// go to no expert, and their sequence is as if they were not there.
#include "ops/router/def.h"
#include "mics/log.h"

static mics_status check(const mics_op_shape *s)
{
    const mics_experts e = s->op->experts;
    const mics_router_spec *r = &s->op->router;
    if (!(e.capacity >= 0 && e.eval_capacity >= 0) || e.min_capacity < 0)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: capacity factors %g and %g, and %d rows at least, are not all "
                         "numbers from 0 on",
                         s->unit, e.capacity, e.eval_capacity, (int)e.min_capacity);
    if (!(r->jitter >= 0 && r->jitter < 1))
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: a router's jitter of %g is not from 0 to below 1", s->unit,
                         (double)r->jitter);
    if (r->random_second && e.chosen != 2)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: a random second expert of %d; a token of 2 experts has one",
                         s->unit, (int)e.chosen);
    return MICS_OK;
}

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const mics_experts e = s->op->experts;
    if (e.chosen < 1 || e.chosen > e.count)
        return mics_fail(MICS_ERR_INVALID, "unit %s: a token cannot go to %d of %d experts",
                         s->unit, (int)e.chosen, (int)e.count);
    MICS_TRY(check(s));
    MICS_TRY(mics_op_check(s, "inputs of the weight", s->params[0][1], s->in[0]));
    *out_out = e.chosen;
    *stats_out = mics_route_floats(e);
    return mics_op_check(s, "experts of the weight", s->params[0][0], e.count);
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const mics_experts e = s->op->experts;
    mics_op_cost cost =
        mics_cost_gemm((double)s->N, (double)s->in[0], (double)e.count, mics_gradients(s));
    const double noise =
        s->op->router.jitter > 0 ? MICS_MASK_FLOPS * (double)s->N * (double)s->in[0] : 0;
    const int64_t wide = s->cpu_bf16 || noise > 0 ? s->N * s->in[0] : 0; // the input in fp32
    cost.workspace_forward = mics_route_rows_floats(e.count) + wide;
    cost.workspace_backward =
        s->N * e.count + (s->params_fixed[0] ? e.count : (int64_t)e.count * s->in[0] + wide);
    cost.flops_forward += noise;
    cost.flops_backward += mics_gradients(s) * noise;
    if (s->accelerator_bytes > 0) {
        cost.workspace_forward =
            mics_router_wide_of(e, s->N) + (noise > 0 ? (s->N + e.count) * s->in[0] : 0);
        if (s->op->sequence_ranks > 0)
            cost.workspace_forward = mics_larger(
                cost.workspace_forward, s->B * mics_router_parts(s->T) * mics_route_sums(e));
        const mics_router_space space = mics_router_space_of(e, s->B, s->T, s->in[0]);
        cost.workspace_backward = s->params_fixed[0] ? space.sums : space.end;
    }
    return cost;
}

static double model_flops(const mics_op_shape *s)
{
    return 2.0 * (1 + mics_gradients(s)) * (double)s->in[0] * (double)s->op->experts.count;
}

const mics_op_def mics_op_def_router = {.name = "router",
                                        .inputs = 1,
                                        .params = 1,
                                        .params_needed = 1,
                                        .param_dims = {2},
                                        .backward_reads_in = {true, true},
                                        .params_read_in = true,
                                        .backward_reads_params = true,
                                        .backward_adds = true,
                                        .reads_segments = true,
                                        .make = make,
                                        .cost = cost_of,
                                        .model_flops = model_flops};
