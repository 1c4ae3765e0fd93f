// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// ReLU (Nair and Hinton, 2010) and SiLU, also called swish (Ramachandran et al., 2017,
// arXiv:1710.05941): activations of one input. GELU is an op of its own, as GEMMs can end with it.
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

static mics_op_cost cost_of(const mics_op_shape *s)
{
    const bool relu = s->op->activation == MICS_ACTIVATION_RELU;
    mics_op_cost cost = mics_cost_moved(s);
    cost.flops_forward = (relu ? 1 : 5) * (double)s->N * (double)s->in[0];
    cost.flops_backward = (relu ? 2 : 10) * (double)s->N * (double)s->in[0];
    return cost;
}

const mics_op_def mics_op_def_activation = {.name = "activation",
                                            .inputs = 1,
                                            .backward_reads_in = {true, true},
                                            .backward_in_place = true,
                                            .backward_adds = true,
                                            .cut = MICS_CUT_WIDTH,
                                            .make = make,
                                            .cost = cost_of};
