// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Causal self-attention. in: q, k, v side by side (3 C); stats: log-sum-exp of each head.
#include "ops/attention/def.h"
#include "mics/log.h"
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    if (s->heads < 1 || s->in[0] % (3 * s->heads) != 0)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: attention: %lld elements are not q, k and v of %lld heads",
                         s->unit, (long long)s->in[0], (long long)s->heads);
    *out_out = s->in[0] / 3;
    *stats_out = s->heads;
    return MICS_OK;
}

// Half of T x T is computed: two products forward, five backward (one of them the recomputed
// scores).
static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double tokens = (double)s->N, width = (double)s->out;
    const double product = tokens * (double)(s->T + 1) * width;
    mics_op_cost cost = {.flops_forward = 2 * product,
                         .flops_backward = 5 * product,
                         .bytes_forward = 4 * tokens * 4 * width,
                         .bytes_backward = 4 * tokens * 8 * width};
    cost.workspace_forward = cost.workspace_backward =
        s->threads * mics_attention_workspace(s->out / s->heads);
    if (s->accelerator_bytes > 0) { // a number for each query of each head
        cost.workspace_forward = 0;
        cost.workspace_backward = s->N * s->heads;
    }
    return cost;
}

static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const mics_op_cost cost = cost_of(s);
    const double bytes = pass->backward ? cost.bytes_backward : cost.bytes_forward;
    works[0] = (mics_op_work){.kind = MICS_WORK_ATTENTION,
                              .m = s->T,
                              .n = s->out / s->heads,
                              .k = s->out / s->heads,
                              .flops = pass->backward ? cost.flops_backward : cost.flops_forward,
                              .bytes = bytes * pass->elem_bytes / (double)sizeof(float),
                              .times = 1};
    return 1;
}

static double model_flops(const mics_op_shape *s)
{
    return 6.0 * (double)s->T * (double)s->out;
}

// Keys and values; scores.
static mics_op_decode decode(const mics_op_shape *s)
{
    return (mics_op_decode){.cache = 2 * s->out, .workspace = s->heads};
}

const mics_op_def mics_op_def_attention = {.name = "attention",
                                           .inputs = 1,
                                           .backward_reads_in = true,
                                           .backward_reads_out = true,
                                           .cut = MICS_CUT_WIDTH,
                                           .make = make,
                                           .cost = cost_of,
                                           .work = work,
                                           .model_flops = model_flops,
                                           .decode = decode};
