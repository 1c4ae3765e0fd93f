// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = silu(gate) * up (Shazeer, GLU variants improve transformer, 2020, arXiv:2002.05202). in: gate
// and up side by side (2 I); out: (I). Of experts a token has as many such rows as it has experts.
#include "ops/common/def.h"
#include "mics/log.h"

// Of a token.
static int64_t rows_of(const mics_op *op)
{
    if (op->expert_ranks > 0)
        return op->travel_rows;
    return op->experts.count > 0 ? op->experts.chosen : 1;
}

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const int64_t rows = rows_of(s->op);
    if (s->in[0] < 2 || s->in[0] % (2 * rows) != 0)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: swiglu: %lld elements are not gate and up of one width", s->unit,
                         (long long)s->in[0]);
    *out_out = s->in[0] / 2;
    *stats_out = 0;
    return MICS_OK;
}

// Backward reads what forward does and the output's gradient, and writes the input's.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_shape used = *s; // of rows that travel some are of no use
    if (s->op->expert_ranks > 0) {
        used.in[0] = s->in[0] / rows_of(s->op) * s->op->experts.chosen;
        used.out = s->out / rows_of(s->op) * s->op->experts.chosen;
    }
    mics_op_cost cost = mics_cost_moved(&used);
    cost.bytes_backward = 4 * (double)s->N * (double)(2 * used.in[0] + used.out);
    cost.flops_forward = 6 * (double)s->N * (double)used.out;
    cost.flops_backward = 12 * (double)s->N * (double)used.out;
    return cost;
}

// Separate kernels, in bytes a number of bf16: the SiLU (4), the product (6); backward of the product
// (12), of the SiLU (6).
const mics_op_def mics_op_def_swiglu = {.name = "swiglu",
                                        .inputs = 1,
                                        .backward_reads_in = {true, true},
                                        .backward_adds = true,
                                        .cut = MICS_CUT_WIDTH,
                                        .make = make,
                                        .separate_forward = 10.0 / 6,
                                        .separate_backward = 18.0 / 10,
                                        .cost = cost_of};
