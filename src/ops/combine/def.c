// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a token's experts gave, which came back as rows, times the router's weights, as one sum. in:
// rows that travel (C), the router's weights (k); out: (C).
#include "ops/experts/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->in[0] / s->op->travel_rows;
    *stats_out = 0;
    return mics_op_check(s, "weights of the router", s->in[1], s->op->experts.chosen);
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double rows = (double)s->N * s->op->experts.chosen * (double)s->out;
    return (mics_op_cost){.flops_forward = 2 * rows,
                          .flops_backward = 3 * rows,
                          .bytes_forward = 4 * (rows + (double)s->N * (double)s->out),
                          .bytes_backward = 4 * (2 * rows + (double)s->N * (double)s->out),
                          .workspace_forward = mics_experts_sent_floats(s),
                          .workspace_backward = mics_experts_sent_floats(s)};
}

const mics_op_def mics_op_def_combine = {.name = "combine",
                                         .inputs = 2,
                                         .backward_reads_in = {true, true},
                                         .backward_second = true,
                                         .make = make,
                                         .cost = cost_of};
