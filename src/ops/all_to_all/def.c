// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rows that travel: block b of the input goes to member b of the expert group, and block b of the
// output comes from it. Backward is the same the other way round. A collective of the schedule.
#include "ops/experts/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->in[0];
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
