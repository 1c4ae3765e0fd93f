// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// GELU (Hendrycks and Gimpel, 2016, arXiv:1606.08415), by erf or in its tanh form.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.flops_forward = 12 * (double)s->N * (double)s->in[0];
    cost.flops_backward = 20 * (double)s->N * (double)s->in[0];
    return cost;
}

const mics_op_def mics_op_def_gelu = {.name = "gelu",
                                      .inputs = 1,
                                      .backward_reads_in = {true, true},
                                      .backward_in_place = true,
                                      .backward_adds = true,
                                      .cut = MICS_CUT_WIDTH,
                                      .make = make,
                                      .cost = cost_of};
