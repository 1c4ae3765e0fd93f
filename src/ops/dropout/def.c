// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Dropout (Srivastava et al., JMLR 2014): in training a number is 0 with a probability, and what is
// kept is scaled so that its mean stays; else y = x. Backward makes the mask anew, so nothing of it
// is kept.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check_dropout(s));
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

// Both passes read one tensor and write one.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    const double elems = (double)s->N * (double)s->out;
    mics_op_cost cost = mics_cost_moved(s);
    cost.bytes_backward = cost.bytes_forward;
    cost.flops_forward = cost.flops_backward = (1 + MICS_MASK_FLOPS) * elems;
    return cost;
}

const mics_op_def mics_op_def_dropout = {.name = "dropout",
                                         .inputs = 1,
                                         .backward_in_place = true,
                                         .backward_adds = true,
                                         .make = make,
                                         .cost = cost_of};
