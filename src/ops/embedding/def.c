// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tokens to vectors. params: token table (V, C), position table (P, C) or none, table of token
// types (R, C) or none. All tokens are of type 0, as a sample is one text: row 0 alone is added.
#include "ops/common/def.h"
#include "ops/linear/def.h"

static mics_status make(const mics_op_shape *s, int64_t *out_out, int64_t *stats_out)
{
    MICS_TRY(mics_op_check(s, "rows of the table", s->params[0][0], s->vocab));
    if (s->params[1][0] > 0) {
        MICS_TRY(mics_op_check(s, "rows of positions", s->params[1][0],
                               s->op->first_position + s->positions));
        MICS_TRY(mics_op_check(s, "width of positions", s->params[1][1], s->params[0][1]));
    }
    if (s->params[2][0] > 0)
        MICS_TRY(mics_op_check(s, "width of token types", s->params[2][1], s->params[0][1]));
    *out_out = s->params[0][1];
    *stats_out = 0;
    return MICS_OK;
}

// On the CPU in bf16: positions sorted by token, and what sorting takes; where positions restart the
// same by position, and these. On an accelerator: sums of
// blocks of rows, for the type's gradient (mics_cuda_bias_backward).
static mics_op_cost cost_of(const mics_op_shape *s)
{
    mics_op_cost cost = mics_cost_moved(s);
    const bool restarts = s->op->segments && s->params[1][0] > 0 && !s->params_fixed[1];
    if (s->cpu_bf16 && !s->params_fixed[0])
        cost.workspace_backward = s->N + s->params[0][0] + 1;
    if (restarts && s->accelerator_bytes == 0)
        cost.workspace_backward += 2 * s->N + s->params[1][0] + 1;
    if (s->accelerator_bytes > 0 && s->params[2][0] > 0 && !s->params_fixed[2])
        cost.workspace_backward = MICS_LINEAR_ACCELERATOR_BLOCKS * s->params[2][1];
    return cost;
}

// The tables' gradients begin as zeros, unless another op has written them before.
static int32_t work(const mics_op_shape *s, const mics_op_pass *pass, mics_op_work *works)
{
    const mics_op_cost cost = mics_cost_moved(s);
    double bytes = (pass->backward ? cost.bytes_backward : cost.bytes_forward) * pass->elem_bytes /
                   (double)sizeof(float);
    for (int i = 0; pass->backward && i < MICS_OP_PARAMS; i++) {
        if (pass->zeroed[i] && !s->params_fixed[i])
            bytes += (double)(s->params[i][0] * s->params[i][1]) * pass->elem_bytes;
    }
    works[0] = mics_work_moved(0, bytes);
    return 1;
}

const mics_op_def mics_op_def_embedding = {.name = "embedding",
                                           .params = 3,
                                           .params_needed = 1,
                                           .param_dims = {2, 2, 2},
                                           .restarts_positions = true,
                                           .make = make,
                                           .cost = cost_of,
                                           .work = work};
