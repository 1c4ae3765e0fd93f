// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is not kept but made again. Of a layer that is recomputed in parts these are results of ops
// without a GEMM, as few as free the most memory: an op runs again only where keeping what it makes
// would take more than keeping what it reads.
//
// Invariants, checked by check_again:
//   1. What backward reads, and what it runs again, lies in the unit's block, or behind all blocks
//      where an op that it runs again makes it.
//   2. In a layer that is not recomputed whole no op with a GEMM runs again: so of two that run as
//      one (mics_op_pair) both do, or neither.
#include "mics/log.h"
#include "schedule/activations.h"
#include "schedule/rules.h"

static void mark(lifetime *lives, int32_t tensor)
{
    if (tensor >= 0)
        lives[tensor] = LIFETIME_SAVED;
}

// What an op's backward reads.
static void mark_read(const mics_model *model, const mics_unit *unit, const mics_op *op,
                      lifetime *lives)
{
    const mics_op_def *def = mics_op_def_get(op->kind);
    mark(lives, def->backward_reads_out ? op->out : -1);
    mark(lives, op->stats);
    mark(lives, op->routes);
    for (int i = 0; i < MICS_OP_INPUTS; i++) {
        if (!def->backward_reads_in[i])
            continue;
        const mics_op_shape shape = mics_op_shape_get(model, unit, op, (mics_batch){.threads = 1});
        mark(lives, mics_op_keeps_in(&shape, i) ? op->in[i] : -1);
    }
}

static bool is_made_again(const mics_unit *unit, const bool *again, int32_t tensor)
{
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (again[o] && (unit->ops[o].out == tensor || unit->ops[o].stats == tensor))
            return true;
    }
    return false;
}

void find_lifetimes(const mics_schedule_spec *spec, int32_t u, const bool *again,
                    lifetime *lives_out)
{
    const mics_unit *unit = &spec->model->units[u];
    for (int32_t t = 0; t < unit->tensor_count; t++)
        lives_out[t] = LIFETIME_STEP;
    for (int32_t o = 0; o < unit->op_count; o++) {
        if (has_backward(unit, &unit->ops[o]))
            mark_read(spec->model, unit, &unit->ops[o], lives_out);
    }
    for (int32_t o = unit->op_count - 1; o >= 0; o--) {
        const mics_op *op = &unit->ops[o];
        const int32_t made[] = {op->out, op->stats}, read[] = {op->in[0], op->in[1], op->routes};
        for (int i = 0; again[o] && i < 2; i++) {
            if (made[i] >= 0 && lives_out[made[i]] == LIFETIME_SAVED)
                lives_out[made[i]] = LIFETIME_AGAIN;
        }
        for (int i = 0; again[o] && i < 3; i++) {
            if (read[i] > 0 && lives_out[read[i]] == LIFETIME_STEP &&
                !is_made_again(unit, again, read[i]))
                lives_out[read[i]] = LIFETIME_SAVED;
        }
    }
}

// ---- the choice ----

int64_t mics_schedule_tensor_elems(const mics_schedule_spec *spec, const mics_tensor *tensor)
{
    const int64_t elems = tensor->width * spec->batch.sequences * spec->batch.length;
    const int64_t elem_bytes = (int64_t)mics_precision_bytes(spec->precision, MICS_MEM_ACTIVATIONS);
    return tensor->wide ? elems * (int64_t)sizeof(float) / elem_bytes : elems;
}

int64_t made_elems(const mics_schedule_spec *spec, const mics_unit *unit, int32_t tensor,
                   bool stats)
{
    mics_tensor of = unit->tensors[tensor];
    of.wide = of.wide || stats; // statistics are fp32 in every precision
    return mics_schedule_tensor_elems(spec, &of);
}

static int64_t saved_elems(const mics_schedule_spec *spec, int32_t u, const bool *again,
                           lifetime *lives)
{
    const mics_unit *unit = &spec->model->units[u];
    int64_t elems = 0;
    find_lifetimes(spec, u, again, lives);
    for (int32_t o = 0; o < unit->op_count; o++) {
        const int32_t made[] = {unit->ops[o].out, unit->ops[o].stats};
        for (int i = 0; i < 2; i++) {
            if (made[i] >= 0 && made[i] != unit->out && lives[made[i]] == LIFETIME_SAVED)
                elems += made_elems(spec, unit, made[i], i == 1);
        }
    }
    return elems;
}

static bool has_work(const mics_schedule_spec *spec, const mics_unit *unit, const mics_op *op,
                     mics_op_work_kind kind)
{
    const mics_op_shape shape = mics_op_shape_get(spec->model, unit, op, spec->batch);
    const mics_op_pass pass = {.elem_bytes = sizeof(float)};
    mics_op_work works[MICS_OP_WORKS];
    for (int32_t i = mics_op_works(&shape, &pass, works) - 1; i >= 0; i--) {
        if (works[i].kind == kind)
            return true;
    }
    return false;
}

static bool is_cheap(const mics_schedule_spec *spec, const mics_unit *unit, const mics_op *op)
{
    const mics_op_def *def = mics_op_def_get(op->kind);
    return !def->multiplies && !def->travels && !def->loss && !def->backward_passes &&
           op->in[0] >= 0 && !has_work(spec, unit, op, MICS_WORK_GEMM);
}

// Marks attention and all that leads to it, by the tensors that they make.
static void find_attention(const mics_schedule_spec *spec, const mics_unit *unit, lifetime *lives)
{
    for (int32_t t = 0; t < unit->tensor_count; t++)
        lives[t] = LIFETIME_STEP;
    for (int32_t o = unit->op_count - 1; o >= 0; o--) {
        const mics_op *op = &unit->ops[o];
        if (op->out < 0 ||
            (lives[op->out] == LIFETIME_STEP && !has_work(spec, unit, op, MICS_WORK_ATTENTION)))
            continue;
        mark(lives, op->out);
        for (int i = 0; i < MICS_OP_INPUTS; i++)
            mark(lives, op->in[i]);
    }
}

static void choose_cheap(const mics_schedule_spec *spec, int32_t u, bool *again, lifetime *lives)
{
    const mics_unit *unit = &spec->model->units[u];
    find_attention(spec, unit, lives);
    for (int32_t o = 0; o < unit->op_count; o++) {
        const mics_op *op = &unit->ops[o];
        const bool leads = op->out >= 0 && lives[op->out] == LIFETIME_SAVED;
        again[o] = (leads ? spec->recompute.attention : spec->recompute.mlp) &&
                   has_backward(unit, op) && is_cheap(spec, unit, op);
    }
    int64_t least = saved_elems(spec, u, again, lives);
    for (int32_t o = unit->op_count - 1; o >= 0; o--) { // what can be kept for nothing is kept
        const bool was = again[o];
        again[o] = false;
        const int64_t elems = was ? saved_elems(spec, u, again, lives) : least;
        again[o] = was && elems > least;
        least = elems < least ? elems : least;
    }
}

// All up to the last that saves something for backward.
static void choose_leading(const mics_schedule_spec *spec, int32_t u, const mics_unit_plan *plan,
                           lifetime *lives)
{
    const mics_unit *unit = &spec->model->units[u];
    // Gradients of a pair's tokens depend on the losses of both its rows.
    bool needed = plan->loss && spec->preference.kind != MICS_PREFERENCE_NONE;
    find_lifetimes(spec, u, plan->again, lives);
    for (int32_t o = unit->op_count - 1; o >= 0; o--) {
        const mics_op *op = &unit->ops[o];
        needed = needed || op->stats >= 0 || (op->out >= 0 && lives[op->out] == LIFETIME_SAVED);
        plan->again[o] = needed;
    }
}

// Whether a unit keeps its input alone.
static bool is_whole(const mics_model *model, mics_recompute recompute, int32_t u)
{
    const int32_t layers = mics_model_computing_units(model) - 2;
    int32_t layer = 0; // from 1 on: 0 is the first unit
    for (int32_t i = 0; i < u; i++)
        layer += mics_unit_computes(&model->units[i]);
    if (recompute.last)
        layer = layers + 1 - layer;
    return recompute.units == MICS_RECOMPUTE_ALL || (layer >= 1 && layer <= recompute.units);
}

void choose_again(const mics_schedule_spec *spec, int32_t u, mics_unit_plan *plan, lifetime *lives)
{
    const int32_t last = spec->model->unit_count - 1;
    plan->forward_in_backward = plan->loss || is_whole(spec->model, spec->recompute, u);
    if (plan->forward_in_backward)
        choose_leading(spec, u, plan, lives);
    else if (u > 0 && u < last && (spec->recompute.attention || spec->recompute.mlp))
        choose_cheap(spec, u, plan->again, lives);
}

// ---- invariants ----

static mics_status check_unit(const mics_schedule *schedule, int32_t u, lifetime *lives)
{
    const mics_unit *unit = &schedule->spec.model->units[u];
    const mics_unit_plan *plan = &schedule->units[u];
    const int64_t end = plan->kept_at + plan->kept_elems;
    int32_t op = 0, invariant = 0;
    find_lifetimes(&schedule->spec, u, plan->again, lives);
    for (; op < unit->op_count && invariant == 0; op++) {
        const int32_t made[] = {unit->ops[op].out, unit->ops[op].stats};
        for (int i = 0; i < 2; i++) {
            const int64_t at = made[i] >= 0 ? plan->tensor_at[made[i]] : 0;
            const bool kept = at >= plan->kept_at && at < end;
            if (made[i] >= 0 && made[i] != unit->out &&
                (lives[made[i]] == LIFETIME_SAVED ? !kept : at < schedule->in_flight_elems))
                invariant = 1;
        }
        if (plan->again[op] && !plan->forward_in_backward &&
            !is_cheap(&schedule->spec, unit, &unit->ops[op]))
            invariant = 2;
    }
    return invariant == 0 ? MICS_OK
                          : mics_fail(MICS_ERR_INVALID,
                                      "schedule: op %d of unit %d breaks invariant %d of "
                                      "recompute.c; this is a defect of mics",
                                      (int)op - 1, (int)u, (int)invariant);
}

mics_status check_again(const mics_schedule *schedule)
{
    const mics_model *model = schedule->spec.model;
    mics_status status = MICS_OK;
    for (int32_t u = 0; status == MICS_OK && u < model->unit_count; u++) {
        lifetime *lives = NULL;
        if (!mics_unit_computes(&model->units[u]))
            continue;
        MICS_TRY(MICS_NEW(schedule->memory, model->units[u].tensor_count, &lives));
        status = check_unit(schedule, u, lives);
        mics_free(schedule->memory, lives);
    }
    return status;
}
