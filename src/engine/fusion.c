// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which neighbouring ops run as one call, where the op table has it: a linear and the GELU behind it, and
// backwards a linear and the GELU before it. Found once, when the engine opens.
#include "engine/engine_internal.h"

static bool is_pair(const mics_op *linear, const mics_op *gelu)
{
    return linear->kind == MICS_OP_LINEAR && gelu->kind == MICS_OP_GELU;
}

// Op `op` is a linear, and the next one the GELU of what it makes.
static bool fuses_forward(const mics_unit *unit, int32_t op)
{
    if (op + 1 >= unit->op_count)
        return false;
    const mics_op *first = &unit->ops[op], *second = &unit->ops[op + 1];
    return is_pair(first, second) && second->in[0] == first->out;
}

// Call `at` is of a linear whose input a GELU made, and the next one that GELU's: the gradient between them is
// read by nobody else.
static bool fuses_backward(const mics_unit *unit, const mics_unit_plan *plan, int32_t at)
{
    if (at + 1 >= plan->grad_count)
        return false;
    const mics_grad_call *first = &plan->grads[at], *second = &plan->grads[at + 1];
    if (first->kind != MICS_GRAD_OP || second->kind != MICS_GRAD_OP)
        return false;
    const mics_op *linear = &unit->ops[first->op], *gelu = &unit->ops[second->op];
    return is_pair(linear, gelu) && linear->in[0] == gelu->out && first->din == second->dout &&
           first->din >= 0 && second->din >= 0 && !first->add_din && !second->add_din;
}

mics_status fusions_open(mics_engine *engine)
{
    const mics_model *model = engine->schedule->spec.model;
    const bool forward = engine->ops->linear_gelu_forward != NULL,
               backward = engine->ops->linear_gelu_backward != NULL;
    size_t count = 0;
    if (!forward && !backward)
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
            engine->fusions[u].forward[op] = forward && fuses_forward(unit, op);
        for (int32_t at = 0; at < plan->grad_count; at++)
            engine->fusions[u].backward[at] = backward && fuses_backward(unit, plan, at);
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
