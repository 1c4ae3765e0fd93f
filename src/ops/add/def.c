// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = a + b: residual connections.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check(s, "second operand", s->in[1], s->in[0]));
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

// Costs count numbers of the precision; fp32 ones, where it is 16 bits, are twice as long.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    if (s->op->wide) {
        cost.bytes_forward *= 2;
        cost.bytes_backward *= 2;
    }
    return cost;
}

const mics_op_def mics_op_def_add = {
    .name = "add", .inputs = 2, .backward_passes = true, .make = make, .cost = cost_of};
