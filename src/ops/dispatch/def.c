// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Puts each token's numbers into rows by the ranks that keep its experts. in: x (C), the router's
// weights (k), of which only the routes are read; out: rows that travel (C), and their tags.
#include "ops/experts/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->op->travel_rows * (s->in[0] + 1);
    *stats_out = 0;
    return mics_op_check(s, "weights of the router", s->in[1], s->op->experts.chosen);
}

// Both passes read one side and write the other.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double elems = (double)s->N * (double)(s->op->experts.chosen + 1) * (double)s->in[0];
    return (mics_op_cost){.bytes_forward = 4 * elems,
                          .bytes_backward = 4 * elems,
                          .workspace_forward = mics_experts_sent_floats(s),
                          .workspace_backward = mics_experts_sent_floats(s)};
}

const mics_op_def mics_op_def_dispatch = {
    .name = "dispatch", .inputs = 2, .backward_adds = true, .make = make, .cost = cost_of};
