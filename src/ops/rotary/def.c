// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings (Su et al., 2021, arXiv:2104.09864). in and out: q, k, v side by side;
// q and k turn, v passes.
#include "ops/common/def.h"
#include "mics/log.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check_heads(s));
    if (s->rotary == NULL || s->rotary->dims > s->heads.dim)
        return mics_fail(MICS_ERR_INVALID,
                         "unit %s: rotary: the model has no table %d for heads of %lld; "
                         "mics_op_rotary adds one",
                         s->unit, (int)s->op->rotary, (long long)s->heads.dim);
    *out_out = s->in[0];
    *stats_out = 0;
    return MICS_OK;
}

// Two products and a sum a number that turns; backward moves as much as forward.
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    cost.bytes_backward = cost.bytes_forward;
    cost.flops_forward = cost.flops_backward =
        3 * (double)s->N * (double)((s->heads.query + s->heads.key_value) * s->rotary->dims);
    return cost;
}

// Separate kernels, in bytes a number of bf16: a copy in fp32 (2 + 4), the rotation of complex numbers
// (8), back (4 + 2); backward alike.
const mics_op_def mics_op_def_rotary = {.name = "rotary",
                                        .inputs = 1,
                                        .backward_in_place = true,
                                        .backward_adds = true,
                                        .cut = MICS_CUT_WIDTH,
                                        .make = make,
                                        .separate_forward = 20.0 / 4,
                                        .separate_backward = 20.0 / 4,
                                        .cost = cost_of};
