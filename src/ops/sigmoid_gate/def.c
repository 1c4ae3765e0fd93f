// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// y = x / (1 + e^-g), one g a token (the gate of Qwen 2's shared experts: Yang et al., Qwen2
// technical report, 2024, arXiv:2407.10671). in: x (C), g (1).
#include "ops/common/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    *out_out = s->in[0];
    *stats_out = 0;
    return mics_op_check(s, "numbers of the gate", s->in[1], 1);
}

// Backward reads x and the output's gradient, and writes x's.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.bytes_backward = 12 * (double)s->N * (double)s->in[0];
    cost.flops_forward = (double)s->N * (double)s->in[0];
    cost.flops_backward = 3 * cost.flops_forward;
    return cost;
}

const mics_op_def mics_op_def_sigmoid_gate = {.name = "sigmoid_gate",
                                              .inputs = 2,
                                              .backward_reads_in = {true, true},
                                              .backward_in_place = true,
                                              .backward_adds = true,
                                              .backward_second = true,
                                              .make = make,
                                              .cost = cost_of};
