// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Block b of the input goes to member b of the group, and block b of the output comes from it: rows
// that travel between ranks that keep different experts, or what ranks exchange that share sequences:
// q, k and v, what attention makes of them, and of a router what lies behind its stats. Backward is the
// same the other way round. A collective of the schedule.
#include "ops/experts/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    const bool sums = s->op->sequence_ranks > 0 && s->op->experts.count > 0;
    *out_out = sums ? mics_route_sums_width(s) : s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    (void)s;
    return (mics_op_cost){.bytes_forward = 0};
}

const mics_op_def mics_op_def_all_to_all = {
    .name = "all_to_all", .inputs = 1, .travels = true, .make = make, .cost = cost_of};
