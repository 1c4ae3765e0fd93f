// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which neighbouring ops run as one call, where the first one's kernels say so (mics_op_pair).
// Found once, when the engine opens.
#include "engine/engine_internal.h"

static bool is_pair(const mics_engine *engine, const mics_op *first, const mics_op *next)
{
    const mics_op_pair *pair = engine->ops->ops[first->kind]->pair;
    return pair != NULL && pair->next == next->kind;
}

// The op after `op` reads what that one makes.
static bool fuses_forward(const mics_engine *engine, const mics_unit *unit, int32_t op)
{
    if (op + 1 >= unit->op_count)
        return false;
    const mics_op *first = &unit->ops[op], *second = &unit->ops[op + 1];
    return is_pair(engine, first, second) && second->in[0] == first->out;
}

// Call `at` is of an op whose input the next call's op made: the gradient between them is read by
// nobody else.
static bool fuses_backward(const mics_engine *engine, const mics_unit *unit,
                           const mics_unit_plan *plan, int32_t at)
{
    if (at + 1 >= plan->grad_count)
        return false;
    const mics_grad_call *first = &plan->grads[at], *second = &plan->grads[at + 1];
    if (first->kind != MICS_GRAD_OP || second->kind != MICS_GRAD_OP)
        return false;
    const mics_op *op = &unit->ops[first->op], *maker = &unit->ops[second->op];
    return is_pair(engine, op, maker) && op->in[0] == maker->out && first->din == second->dout &&
           first->din >= 0 && second->din >= 0 && !first->add_din && !second->add_din;
}

mics_status fusions_open(mics_engine *engine)
{
    const mics_model *model = engine->schedule->spec.model;
    size_t count = 0;
    bool any = false;
    for (int kind = 0; kind < MICS_OP_KINDS; kind++)
        any = any || engine->ops->ops[kind]->pair != NULL;
    if (!any)
        return MICS_OK;
    for (int32_t u = 0; u < model->unit_count; u++)
        count += (size_t)model->units[u].op_count + (size_t)engine->schedule->units[u].grad_count;
    void *block = NULL;
    MICS_TRY(mics_alloc(engine->spec.memory, MICS_MEM_HOST,
                        (size_t)model->unit_count * sizeof(unit_fusion), &block));
    engine->fusions = block;
    MICS_TRY(mics_alloc(engine->spec.memory, MICS_MEM_HOST, count * sizeof(bool), &block));
    bool *next = engine->fused = block;
    for (int32_t u = 0; u < model->unit_count; u++) {
        const mics_unit *unit = &model->units[u];
        const mics_unit_plan *plan = &engine->schedule->units[u];
        engine->fusions[u] = (unit_fusion){.forward = next, .backward = next + unit->op_count};
        next += unit->op_count + plan->grad_count;
        for (int32_t op = 0; op < unit->op_count; op++)
            engine->fusions[u].forward[op] = fuses_forward(engine, unit, op);
        for (int32_t at = 0; at < plan->grad_count; at++)
            engine->fusions[u].backward[at] = fuses_backward(engine, unit, plan, at);
    }
    return MICS_OK;
}

bool is_fused_forward(const mics_engine *engine, int32_t unit, int32_t op)
{
    return engine->fusions != NULL && engine->fusions[unit].forward[op];
}

bool is_fused_backward(const mics_engine *engine, int32_t unit, int32_t call)
{
    return engine->fusions != NULL && engine->fusions[unit].backward[call];
}
