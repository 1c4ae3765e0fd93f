// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which neighbouring ops run as one call, where the first one's kernels say so (mics_op_pair).
#include "engine/fusion.h"
#include "schedule/rules.h"

static const mics_op_pair *find_pair(const mics_engine *engine, const mics_op *first,
                                     const mics_op *next)
{
    const mics_op_pair *pair = engine->ops->ops[first->kind]->pairs;
    while (pair != NULL && pair->forward != NULL && pair->next != next->kind)
        pair++;
    return pair != NULL && pair->forward != NULL ? pair : NULL;
}

static bool reads(const mics_op *op, int32_t tensor)
{
    for (int i = 0; i < MICS_OP_INPUTS; i++) {
        if (op->in[i] == tensor)
            return true;
    }
    return false;
}

// Whether one op alone reads a tensor of a unit, forward and backward: gradient calls read what ops
// read, and no op of a pair its own output.
static bool is_read_once(const mics_unit *unit, int32_t tensor)
{
    int32_t readers = unit->out == tensor;
    for (int32_t o = 0; o < unit->op_count; o++)
        readers += reads(&unit->ops[o], tensor);
    return readers == 1;
}

// Whether two tensors of a unit share memory, as those do that are never alive at once.
static bool overlap(const mics_engine *engine, int32_t unit, int32_t a, int32_t b)
{
    const mics_schedule *schedule = engine->schedule;
    const mics_tensor *tensors = schedule->spec.model->units[unit].tensors;
    const int64_t *at = schedule->units[unit].tensor_at;
    return at[a] < at[b] + mics_schedule_tensor_elems(&schedule->spec, &tensors[b]) &&
           at[b] < at[a] + mics_schedule_tensor_elems(&schedule->spec, &tensors[a]);
}

// Whether one call can leave out the tensor between two ops. It writes the second op's output while
// it reads the first op's input.
static bool can_skip(const mics_engine *engine, int32_t unit, const mics_op *first,
                     const mics_op *second)
{
    const mics_unit *of = &engine->schedule->spec.model->units[unit];
    return second->in[0] != second->in[1] && is_read_once(of, first->out) &&
           !overlap(engine, unit, second->out, first->in[0]);
}

// The op after `op` reads what that one makes.
const mics_op_pair *fused_forward(const mics_engine *engine, int32_t unit, int32_t op)
{
    const mics_unit *of = &engine->schedule->spec.model->units[unit];
    if (op + 1 >= of->op_count)
        return NULL;
    const mics_op *first = &of->ops[op], *second = &of->ops[op + 1];
    const mics_op_pair *pair = find_pair(engine, first, second);
    const bool fits = pair != NULL && reads(second, first->out) &&
                      (!pair->skips_between || can_skip(engine, unit, first, second));
    return fits ? pair : NULL;
}

// The call is of an op whose input the next call's op made: the gradient between them is read by
// nobody else.
const mics_op_pair *fused_backward(const mics_engine *engine, int32_t unit, int32_t call)
{
    const mics_unit *of = &engine->schedule->spec.model->units[unit];
    const mics_unit_plan *plan = &engine->schedule->units[unit];
    if (call + 1 >= plan->grad_count)
        return NULL;
    const mics_grad_call *first = &plan->grads[call], *second = &plan->grads[call + 1];
    if (first->kind != MICS_GRAD_OP || second->kind != MICS_GRAD_OP)
        return NULL;
    const mics_op *op = &of->ops[first->op], *maker = &of->ops[second->op];
    const mics_op_pair *pair = find_pair(engine, op, maker);
    const bool fits = pair != NULL && pair->backward != NULL && op->in[0] == maker->out &&
                      first->din == second->dout && first->din >= 0 && second->din >= 0 &&
                      !first->add_din && !second->add_din;
    return fits ? pair : NULL;
}
