// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which neighbouring ops run as one call, where the first one's kernels say so (mics_op_pair).
#include "engine/fusion.h"

static bool is_pair(const mics_engine *engine, const mics_op *first, const mics_op *next)
{
    const mics_op_pair *pair = engine->ops->ops[first->kind]->pair;
    return pair != NULL && pair->next == next->kind;
}

// The op after `op` reads what that one makes.
bool is_fused_forward(const mics_engine *engine, int32_t unit, int32_t op)
{
    const mics_unit *of = &engine->schedule->spec.model->units[unit];
    if (op + 1 >= of->op_count)
        return false;
    const mics_op *first = &of->ops[op], *second = &of->ops[op + 1];
    return is_pair(engine, first, second) && second->in[0] == first->out;
}

// The call is of an op whose input the next call's op made: the gradient between them is read by
// nobody else.
bool is_fused_backward(const mics_engine *engine, int32_t unit, int32_t call)
{
    const mics_unit *of = &engine->schedule->spec.model->units[unit];
    const mics_unit_plan *plan = &engine->schedule->units[unit];
    if (call + 1 >= plan->grad_count)
        return false;
    const mics_grad_call *first = &plan->grads[call], *second = &plan->grads[call + 1];
    if (first->kind != MICS_GRAD_OP || second->kind != MICS_GRAD_OP)
        return false;
    const mics_op *op = &of->ops[first->op], *maker = &of->ops[second->op];
    return is_pair(engine, op, maker) && op->in[0] == maker->out && first->din == second->dout &&
           first->din >= 0 && second->din >= 0 && !first->add_din && !second->add_din;
}
