// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Numbers of the precision as fp32 (mics_op.wide), or fp32 numbers rounded to the precision:
// between a residual stream in fp32 and other ops (mics_model_widen_residual).
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

// One side has numbers of 4 bytes where costs count those of the precision, of 2.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.bytes_forward *= 1.5;
    cost.bytes_backward = cost.bytes_forward;
    return cost;
}

const mics_op_def mics_op_def_cast = {
    .name = "cast", .inputs = 1, .backward_adds = true, .make = make, .cost = cost_of};
