// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Invariants 14 and 15 of validate.c: blocks of activations that host memory holds meanwhile.
#include "schedule/validate.h"

static block_state *state_of(const validator *v, int32_t unit)
{
    const int32_t in_flight = v->list->steps[v->index].in_flight;
    return &v->blocks[unit * v->schedule->spec.layered_micro_steps + in_flight];
}

// The next unit that computes: whose input a unit writes. -1: none.
static int32_t unit_behind(const validator *v, int32_t unit)
{
    do
        unit++;
    while (unit < units_of(v) && !mics_unit_computes(unit_of(v, unit)));
    return unit < units_of(v) ? unit : -1;
}

// A unit's place in the arena is overwritten.
static mics_status take_place(const validator *v, int32_t unit)
{
    const mics_unit_plan *plan = &v->schedule->units[unit];
    for (int32_t u = 0; u < units_of(v); u++) {
        const mics_unit_plan *other = &v->schedule->units[u];
        block_state *state = state_of(v, u);
        if (u == unit || plan->kept_at >= other->kept_at + other->kept_elems ||
            other->kept_at >= plan->kept_at + plan->kept_elems)
            continue;
        if (state->lives && (state->stored < 0 || !validator_precedes(v, state->stored)))
            return validator_broken(v, 15, "it overwrites a block that is not stored");
        if (!validator_precedes(v, state->touched))
            return validator_broken(v, 15, "it overwrites a block that may still be used");
        state->there = false;
    }
    state_of(v, unit)->there = true;
    return MICS_OK;
}

// What a forward begins, and a backward needs, of a unit's block.
static mics_status use_block(const validator *v, int32_t unit, bool backward)
{
    block_state *state = state_of(v, unit);
    if (!backward && !state->there)
        MICS_TRY(take_place(v, unit));
    if (!state->there || !validator_precedes(v, state->fetched))
        return validator_broken(v, 14, "a block that it needs is not in the arena");
    state->touched = v->index;
    return MICS_OK;
}

mics_status check_blocks(validator *v, const mics_step *step)
{
    const bool backward = step->kind == MICS_STEP_BACKWARD;
    const int32_t behind = unit_behind(v, step->unit);
    block_state *own = state_of(v, step->unit);
    if (!is_training(v) || v->schedule->spec.offload_units == 0)
        return MICS_OK;
    MICS_TRY(use_block(v, step->unit, backward));
    if (behind >= 0)
        MICS_TRY(use_block(v, behind, backward));
    if (!backward && step->part.op == 0)
        own->stored = own->fetched = -1;
    own->lives = !backward || !mics_schedule_ends_pass(v->schedule, step);
    return MICS_OK;
}

mics_status check_copy(validator *v, const mics_step *step)
{
    const bool stores = step->kind == MICS_STEP_STORE;
    const mics_unit_plan *plan = &v->schedule->units[step->unit];
    block_state *state = state_of(v, step->unit);
    const mics_step *pass = &v->list->steps[v->pass >= 0 ? v->pass : v->index];
    if (plan->host_at < 0 || step->block_elems != plan->kept_elems ||
        (stores ? step->from : step->to) != plan->kept_at ||
        (stores ? step->to : step->from) != plan->host_at)
        return validator_broken(v, 14, "it copies something else than the unit's block");
    if (stores) {
        if (!state->there || state->touched != v->pass || pass->unit != step->unit ||
            pass->micro_step != step->micro_step || !validator_precedes(v, v->pass) ||
            !mics_schedule_ends_pass(v->schedule, pass))
            return validator_broken(v, 14, "it does not follow the unit's forward");
        state->stored = v->index;
        return MICS_OK;
    }
    if (!state->lives || state->there || state->stored < 0 ||
        v->list->steps[state->stored].micro_step != step->micro_step)
        return validator_broken(v, 14, "nothing of it is stored, or it is there");
    state->fetched = state->touched = v->index;
    return take_place(v, step->unit);
}
