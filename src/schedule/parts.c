// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The part of a unit that a rank owns, and the parts of a unit's passes, with all-to-alls between
// them, and the units that each part reads and writes.
#include "schedule/parts.h"
#include <assert.h>

// ---- a rank's part of a unit ----

// Part 1 / E of `all`, in the ownership order.
static mics_range block_of(const mics_schedule *schedule, int32_t unit, int32_t rank, int64_t all)
{
    const int32_t experts = schedule->experts[unit];
    const int64_t part = all / experts;
    const int64_t begin = part * mics_mesh_position(&schedule->spec.mesh, rank, experts);
    return (mics_range){begin, begin + part};
}

mics_range mics_schedule_unit_block(const mics_schedule *schedule, int32_t unit, int32_t rank)
{
    return block_of(schedule, unit, rank, schedule->spec.model->units[unit].elems);
}

mics_range mics_schedule_unit_params(const mics_schedule *schedule, int32_t unit, int32_t rank)
{
    return block_of(schedule, unit, rank, schedule->spec.model->units[unit].param_count);
}

mics_range mics_schedule_unit_range(const mics_schedule *schedule, int32_t unit, int32_t rank,
                                    int32_t degree)
{
    const int32_t experts = schedule->experts[unit];
    const int64_t block = schedule->padded_elems[unit] / degree;
    const int32_t position =
        mics_mesh_position(&schedule->spec.mesh, rank, degree * experts) % degree;
    return (mics_range){block * position, block * (position + 1)};
}

// ---- parts of passes ----

bool mics_schedule_ends_pass(const mics_schedule *schedule, const mics_step *step)
{
    return step->kind == MICS_STEP_BACKWARD
               ? step->part.call_end == schedule->units[step->unit].grad_count
               : step->part.op_end == schedule->spec.model->units[step->unit].op_count;
}

static void add_params(const builder *b, const mics_op *op, bool trained, unit_set *set)
{
    for (int i = 0; i < MICS_OP_PARAMS; i++) {
        const int32_t unit = op->params[i].unit;
        if (unit >= 0 && (!trained || mics_schedule_trains(b->schedule, unit)))
            add_unit(unit, set);
    }
}

static double op_flops(const builder *b, const mics_unit *unit, const mics_op *op, bool backward)
{
    const mics_schedule_spec *spec = &b->schedule->spec;
    if (spec->like != NULL && b->schedule->spread == NULL) // taken over
        return 0;
    const mics_op_cost cost = mics_op_cost_get(spec->model, unit, op, spec->batch);
    return backward ? cost.flops_backward : cost.flops_forward;
}

// Reads, writes and FLOPs of a part of a pass.
static void find_part(const builder *b, int32_t u, bool backward, pass_part *part)
{
    const mics_unit *unit = unit_of(b, u);
    for (int32_t o = part->range.op; o < part->range.op_end; o++) {
        if (backward && !b->schedule->units[u].again[o])
            continue;
        add_params(b, &unit->ops[o], false, &part->reads);
        part->flops += op_flops(b, unit, &unit->ops[o], false);
    }
    for (int32_t c = part->range.call; c < part->range.call_end; c++) {
        const mics_grad_call *call = &b->schedule->units[u].grads[c];
        if (call->kind != MICS_GRAD_OP)
            continue;
        const mics_op *op = &unit->ops[call->op];
        if (mics_op_def_get(op->kind)->backward_reads_params)
            add_params(b, op, false, &part->reads);
        add_params(b, op, true, &part->writes);
        part->flops += op_flops(b, unit, op, true);
    }
}

// Ends a part before an all-to-all, and begins the next one behind it.
static void end_part(pass_part *parts, int32_t *count, mics_step_part next, int32_t op,
                     int32_t call)
{
    parts[*count].op = op;
    parts[*count].call = call;
    ++*count;
    assert(*count < MAX_PARTS); // mics_model_spread refuses more in a unit
    parts[*count] = (pass_part){.range = next, .op = -1, .call = -1};
}

static bool travels(const mics_unit *unit, int32_t op)
{
    return mics_op_def_get(unit->ops[op].kind)->travels;
}

void find_parts(builder *b, int32_t u, bool backward)
{
    const mics_unit *unit = unit_of(b, u);
    const mics_unit_plan *plan = &b->schedule->units[u];
    const int32_t calls = backward ? plan->grad_count : 0;
    unit_facts *facts = &b->facts[u];
    pass_part *parts = facts->parts[backward];
    int32_t count = 0;
    parts[0] = (pass_part){.op = -1, .call = -1};
    int32_t ops = 0; // up to the last that runs
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (backward && !plan->again[o])
            continue;
        ops = o + 1;
        if (travels(unit, o))
            end_part(parts, &count, (mics_step_part){ops, ops, 0, 0}, o, -1);
        else
            parts[count].range.op_end = ops;
    }
    for (int32_t c = 0; c < calls; c++) {
        if (plan->grads[c].kind == MICS_GRAD_OP && travels(unit, plan->grads[c].op))
            end_part(parts, &count, (mics_step_part){ops, ops, c + 1, c + 1}, plan->grads[c].op, c);
        else
            parts[count].range.call_end = c + 1;
    }
    facts->part_count[backward] = count + 1;
    for (int32_t i = 0; i <= count; i++) {
        find_part(b, u, backward, &parts[i]);
        for (int32_t r = 0; r < parts[i].reads.count; r++)
            add_unit(parts[i].reads.units[r], &facts->reads[backward]);
        for (int32_t w = 0; w < parts[i].writes.count; w++)
            add_unit(parts[i].writes.units[w], &facts->writes);
    }
}

double sum_flops(const unit_facts *facts, bool backward)
{
    double flops = 0;
    for (int32_t i = 0; i < facts->part_count[backward]; i++)
        flops += facts->parts[backward][i].flops;
    return flops;
}
