// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Invariants 5 to 11 of validate.c: what becomes of each unit's parameters and gradients.
#include "mics/log.h"
#include "schedule/rules.h"
#include "schedule/validate.h"

mics_status validator_broken(const validator *v, int number, const char *why)
{
    const mics_step *step = &v->list->steps[v->index];
    return mics_fail(
        MICS_ERR_INVALID,
        "schedule, %s: step %d (%s of unit %d, micro-step %d) breaks invariant %d: %s; "
        "this is a defect of mics",
        v->phase == MICS_PHASE_TRAIN ? "training" : "evaluation", (int)v->index,
        mics_step_text(step->kind, step->stage), (int)step->unit, (int)step->micro_step, number,
        why);
}

bool validator_precedes(const validator *v, int32_t step)
{
    return step < 0 || v->known[v->index].newest[v->list->steps[step].stream] >= step;
}

static bool all_precede(const validator *v, const stream_clock *steps)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (!validator_precedes(v, steps->newest[stream]))
            return false;
    }
    return true;
}

// ---- 6, 7: slots and stages ----

static mics_status take_slot(const validator *v, slot_state *slot, int32_t unit, int32_t micro_step)
{
    if (!all_precede(v, &slot->used))
        return validator_broken(v, 6, "it fills a slot that may still be used");
    slot->unit = unit;
    slot->micro_step = micro_step;
    slot->filled = -1;
    return MICS_OK;
}

static void use_slot(const validator *v, slot_state *slot)
{
    slot->used.newest[v->list->steps[v->index].stream] = v->index;
}

// Which stage follows; WHOLE: none, or any first one.
static mics_step_stage stage_behind(const chain_state *chain)
{
    const bool sums = mics_step_sums(&(mics_step){.kind = chain->kind});
    if (chain->last < 0)
        return MICS_STAGE_WHOLE;
    if (chain->stage == MICS_STAGE_INTRA && sums)
        return MICS_STAGE_INTER;
    return chain->stage == MICS_STAGE_INTER && !sums ? MICS_STAGE_INTRA : MICS_STAGE_WHOLE;
}

static bool is_first(const mics_step *step)
{
    return step->stage == MICS_STAGE_WHOLE ||
           step->stage == (mics_step_sums(step) ? MICS_STAGE_INTRA : MICS_STAGE_INTER);
}

bool validator_completed(const chain_state *chain)
{
    return chain->last >= 0 && stage_behind(chain) == MICS_STAGE_WHOLE;
}

mics_status validator_go_on(const validator *v, chain_state *chain)
{
    const mics_step *step = &v->list->steps[v->index];
    const mics_step_stage next = stage_behind(chain);
    if (next == MICS_STAGE_WHOLE ? !is_first(step)
                                 : step->kind != chain->kind || step->stage != next)
        return validator_broken(v, 7, "it is not the stage that comes next");
    if (next != MICS_STAGE_WHOLE && !validator_precedes(v, chain->last))
        return validator_broken(v, 7, "it begins before the stage before it has ended");
    *chain = (chain_state){.kind = step->kind, .stage = step->stage, .last = v->index};
    return MICS_OK;
}

// ---- 5, 10: parameters ----

static bool defers(const validator *v)
{
    return is_training(v) && mics_schedule_defers(v->schedule);
}

static mics_status check_updated(const validator *v, int32_t unit)
{
    const int32_t updated = v->units[unit].updated;
    return !defers(v) || !mics_schedule_trains(v->schedule, unit) ||
                   (updated >= 0 && validator_precedes(v, updated))
               ? MICS_OK
               : validator_broken(v, 10, "the unit's update has not been");
}

static bool needs_sync(const validator *v, int32_t unit)
{
    return is_training(v) && unit_of(v, unit)->param_count > 0 &&
           mics_schedule_trains(v->schedule, unit) &&
           sharding_of(v, unit)->optimizer > sharding_of(v, unit)->params;
}

static mics_status check_synced(const validator *v, int32_t unit)
{
    const chain_state *sync = &v->units[unit].sync;
    MICS_TRY(check_updated(v, unit));
    if (needs_sync(v, unit) && !(validator_completed(sync) && validator_precedes(v, sync->last)))
        return validator_broken(v, 10, "it reads what is not synchronised yet");
    return MICS_OK;
}

// Whether sums come back in the list that makes them.
static bool gathers_early(const validator *v)
{
    const mics_schedule_spec *spec = &v->schedule->spec;
    return (spec->all_reduces && spec->mesh.sharding.optimizer < spec->mesh.ranks) ||
           spec->early_gathers;
}

// Whether the replica scatter of a unit is done.
static bool is_scattered(const validator *v, int32_t unit)
{
    const chain_state *hop = &v->units[unit].hop;
    return validator_completed(hop) && hop->kind == MICS_STEP_REPLICA_SCATTER &&
           validator_precedes(v, hop->last);
}

mics_status check_replica_gather(validator *v, const mics_step *step)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(v->schedule, step, &count);
    for (int32_t i = 0; i < count; i++) {
        chain_state *back = &v->units[units[i]].back;
        if (!(defers(v) || gathers_early(v)) || unit_of(v, units[i])->param_count == 0 ||
            !mics_schedule_trains(v->schedule, units[i]) || validator_completed(back))
            return validator_broken(v, 10, "it comes back twice, or need not");
        if (gathers_early(v) && !is_scattered(v, units[i]))
            return validator_broken(v, 9, "what it gathers is not summed yet");
        MICS_TRY(validator_go_on(v, back));
    }
    return MICS_OK;
}

mics_status check_sync(validator *v, const mics_step *step)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(v->schedule, step, &count);
    for (int32_t i = 0; i < count; i++) {
        chain_state *sync = &v->units[units[i]].sync;
        if (!needs_sync(v, units[i]) || validator_completed(sync))
            return validator_broken(v, 10, "it is synchronised twice, or need not be");
        MICS_TRY(check_updated(v, units[i]));
        MICS_TRY(validator_go_on(v, sync));
    }
    return MICS_OK;
}

mics_status check_gather(validator *v, const mics_step *step)
{
    const int32_t unit = step->unit, slot = step->uses[0].param_slot;
    const bool shared = mics_schedule_shares(v->schedule, unit);
    chain_state *gather = &v->units[unit].gather;
    MICS_TRY(check_synced(v, unit));
    if (sharding_of(v, unit)->params == 1)
        return validator_broken(v, 5, "there is nothing to gather");
    if (shared != (step->algorithm == MICS_ALGORITHM_SHARED) || shared != (slot < 0) ||
        (shared && gather->last >= 0))
        return validator_broken(v, 5, "shared parameters have one barrier a list, and no slot");
    MICS_TRY(validator_go_on(v, gather));
    if (shared)
        return MICS_OK;
    if (slot >= v->schedule->param_slot_count ||
        v->schedule->param_slots[slot] < v->schedule->padded_elems[unit])
        return validator_broken(v, 5, "its slot is none, or too small");
    if (is_first(step))
        MICS_TRY(take_slot(v, &v->params[slot], unit, step->micro_step));
    if (v->params[slot].unit != unit)
        return validator_broken(v, 5, "its stages fill two slots");
    v->params[slot].filled = validator_completed(gather) ? v->index : -1;
    use_slot(v, &v->params[slot]);
    return MICS_OK;
}

static const mics_step_use *use_of(const mics_step *step, int32_t unit)
{
    for (int32_t i = 0; i < step->use_count; i++) {
        if (step->uses[i].unit == unit)
            return &step->uses[i];
    }
    return NULL;
}

static mics_status check_read(validator *v, const mics_step *step, int32_t unit)
{
    const mics_step_use *use = use_of(step, unit);
    const bool slotted =
        sharding_of(v, unit)->params > 1 && !mics_schedule_shares(v->schedule, unit);
    MICS_TRY(check_synced(v, unit));
    if (use == NULL || slotted != (use->param_slot >= 0))
        return validator_broken(v, 5, "it does not say where it reads a unit");
    if (mics_schedule_shares(v->schedule, unit) &&
        (v->units[unit].gather.last < 0 || !validator_precedes(v, v->units[unit].gather.last)))
        return validator_broken(v, 5, "it reads shared parameters before the barrier");
    if (!slotted)
        return MICS_OK;
    slot_state *slot = &v->params[use->param_slot];
    if (use->param_slot >= v->schedule->param_slot_count || slot->unit != unit ||
        slot->filled < 0 || !validator_precedes(v, slot->filled))
        return validator_broken(v, 5, "its slot does not hold the unit that it reads");
    use_slot(v, slot);
    return MICS_OK;
}

// ---- 8: gradients of a layered group ----

static bool has_grad_slot(const validator *v, int32_t unit)
{
    const mics_schedule_spec *spec = &v->schedule->spec;
    return sharding_of(v, unit)->grads > 1 ||
           (spec->precision == MICS_PRECISION_MIXED && !mics_schedule_rounds_sums(spec));
}

static mics_status check_write(validator *v, const mics_step *step, int32_t unit)
{
    const mics_step_use *use = use_of(step, unit);
    const bool sharded = sharding_of(v, unit)->grads > 1, slotted = has_grad_slot(v, unit);
    const int32_t first = step->micro_step - (sharded ? step->in_flight : 0); // in the same slot
    if (use == NULL || slotted != (use->grad_slot >= 0) ||
        (slotted && use->grad_slot >= v->schedule->grad_slot_count))
        return validator_broken(v, 8, "it does not say where it writes a gradient");
    if (sharded ? use->accumulate != (step->in_flight > 0)
                : (use->fold || !slotted) && use->accumulate != (step->micro_step > 0))
        return validator_broken(v, 8, "the first micro-step overwrites, the others add");
    MICS_TRY(check_updated(v, unit));
    if (sharded && v->units[unit].reduced != first)
        return validator_broken(v, 8, "it writes a gradient that is reduced already");
    v->units[unit].writer = v->index;
    if (!slotted)
        return MICS_OK;
    slot_state *slot = &v->grads[use->grad_slot];
    if (slot->unit != unit || slot->micro_step != first)
        MICS_TRY(take_slot(v, slot, unit, first));
    if (v->schedule->grad_slots[use->grad_slot] < v->schedule->padded_elems[unit])
        return validator_broken(v, 8, "its slot is too small");
    use_slot(v, slot);
    return MICS_OK;
}

mics_status check_reduce(validator *v, const mics_step *step)
{
    unit_state *unit = &v->units[step->unit];
    const mics_step_use *use = &step->uses[0];
    const bool last = step->stage != MICS_STAGE_INTRA;
    if (sharding_of(v, step->unit)->grads == 1 || unit->reduced > step->micro_step)
        return validator_broken(v, 8, "it is reduced twice, or out of turn");
    if (use->grad_slot < 0 || use->grad_slot >= v->schedule->grad_slot_count)
        return validator_broken(v, 8, "there is no slot that it reduces");
    slot_state *slot = &v->grads[use->grad_slot];
    if (slot->unit != step->unit || slot->micro_step != unit->reduced)
        return validator_broken(v, 8, "its slot holds another gradient");
    MICS_TRY(validator_go_on(v, &unit->reduce));
    if (!validator_precedes(v, unit->writer) ||
        v->list->steps[unit->writer].micro_step != step->micro_step)
        return validator_broken(v, 8, "it begins before all of its gradient is there");
    if (use->accumulate != (last && unit->reduced > 0))
        return validator_broken(v, 8, "the first layered group overwrites, the others add");
    if (last)
        unit->reduced = step->micro_step + 1;
    use_slot(v, slot);
    return MICS_OK;
}

static mics_status check_op(validator *v, const mics_step *step, const mics_op *op, bool reads,
                            bool writes)
{
    for (int p = 0; p < MICS_OP_PARAMS; p++) {
        if (op->params[p].unit >= 0 && reads)
            MICS_TRY(check_read(v, step, op->params[p].unit));
        if (op->params[p].unit >= 0 && writes &&
            mics_schedule_trains(v->schedule, op->params[p].unit))
            MICS_TRY(check_write(v, step, op->params[p].unit));
    }
    return MICS_OK;
}

// Parameters that the step's ops read, and gradients that they write.
mics_status check_uses(validator *v, const mics_step *step)
{
    const mics_unit *unit = unit_of(v, step->unit);
    const mics_grad_call *calls = v->schedule->units[step->unit].grads;
    for (int32_t o = step->part.op; o < step->part.op_end; o++)
        MICS_TRY(check_op(v, step, &unit->ops[o], mics_schedule_runs(v->schedule, step, o), false));
    for (int32_t c = step->part.call; c < step->part.call_end; c++) {
        if (calls[c].kind != MICS_GRAD_OP)
            continue;
        const mics_op *op = &unit->ops[calls[c].op];
        MICS_TRY(check_op(v, step, op, mics_op_def_get(op->kind)->backward_reads_params, true));
    }
    return MICS_OK;
}

// ---- 9, 11: the boundary ----

// Behind all gradients of the unit, which is to say of the last micro-step.
static mics_status begin_hop(const validator *v, const mics_step *step, int32_t unit)
{
    const unit_state *state = &v->units[unit];
    const mics_sharding *s = sharding_of(v, unit);
    const bool scatters = s->optimizer > s->grads;
    const int32_t micro_steps = v->schedule->spec.micro_steps;
    if (step->kind != (scatters ? MICS_STEP_SCATTER : MICS_STEP_REPLICA_SCATTER))
        return validator_broken(v, 9, "the second hop does not begin so");
    if (s->grads > 1 ? state->reduced < micro_steps || !validator_precedes(v, state->reduce.last)
                     : !validator_precedes(v, state->writer) ||
                           v->list->steps[state->writer].micro_step != micro_steps - 1)
        return validator_broken(v, 9, "it begins before its gradient is whole");
    return MICS_OK;
}

mics_status check_hop(validator *v, const mics_step *step)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(v->schedule, step, &count);
    for (int32_t i = 0; i < count; i++) {
        chain_state *hop = &v->units[units[i]].hop;
        if (v->units[units[i]].writer < 0)
            return validator_broken(v, 9, "there is no gradient to sum");
        if (hop->last < 0)
            MICS_TRY(begin_hop(v, step, units[i]));
        else if (validator_completed(hop) && (hop->kind == MICS_STEP_REPLICA_SCATTER ||
                                              step->kind != MICS_STEP_REPLICA_SCATTER))
            return validator_broken(v, 9, "it has had its second hop");
        else if (!validator_precedes(v, hop->last))
            return validator_broken(v, 7, "it begins before the step before it has ended");
        MICS_TRY(validator_go_on(v, hop));
    }
    return MICS_OK;
}

mics_status check_norm(validator *v)
{
    if (v->norm >= 0 || !is_training(v))
        return validator_broken(v, 11, "one norm is enough");
    for (int32_t u = 0; u < units_of(v); u++) {
        const mics_sharding *s = sharding_of(v, u);
        const unit_state *unit = &v->units[u];
        const bool reduces = s->optimizer < mics_schedule_unit_ranks(v->schedule, u);
        const bool hops = reduces || s->optimizer > s->grads;
        if (unit_of(v, u)->param_count == 0 || !mics_schedule_trains(v->schedule, u))
            continue;
        if (s->grads > 1 &&
            (unit->reduced < v->schedule->spec.micro_steps || !validator_completed(&unit->reduce)))
            return validator_broken(v, 8, "a unit's gradient is not reduced in every micro-step");
        if (hops && (!validator_completed(&unit->hop) ||
                     (reduces && unit->hop.kind != MICS_STEP_REPLICA_SCATTER)))
            return validator_broken(v, 9, "a unit has not had its second hop");
        if (gathers_early(v) &&
            !(validator_completed(&unit->back) && validator_precedes(v, unit->back.last)))
            return validator_broken(v, 9, "a unit's sums have not come back");
        if (!validator_precedes(v, unit->reduce.last) || !validator_precedes(v, unit->hop.last) ||
            !validator_precedes(v, unit->writer))
            return validator_broken(v, 11, "it is of unsummed gradients");
    }
    v->norm = v->index;
    return MICS_OK;
}

mics_status check_agree(validator *v)
{
    if (v->agreement >= 0 || (is_training(v) && v->norm < 0) || !validator_precedes(v, v->norm))
        return validator_broken(v, 11, "ranks agree once, behind the norm");
    if (!all_precede(v, &v->readers))
        return validator_broken(v, 11, "parameters may change while they are read");
    v->agreement = v->index;
    return MICS_OK;
}

// Behind what a unit's update waits for.
static mics_status check_due(const validator *v, const mics_step *step)
{
    const unit_state *unit = &v->units[step->unit];
    const bool sums = unit_of(v, step->unit)->param_count > 0 && !gathers_early(v);
    if (defers(v) && sums &&
        !(validator_completed(&unit->back) && validator_precedes(v, unit->back.last)))
        return validator_broken(v, 10, "its gradient has not come back");
    return MICS_OK;
}

// Kind of the newest step in the round of the step that is checked.
static mics_step_kind newest_in_round(const validator *v)
{
    return v->list->steps[v->round].kind;
}

static bool is_of_round(const validator *v, int32_t unit)
{
    return v->schedule->rounds[unit].at == v->schedule->rounds[v->list->steps[v->round].unit].at;
}

mics_status check_momentum(validator *v, const mics_step *step)
{
    const mics_round *round = &v->schedule->rounds[step->unit];
    const int32_t before = v->round < 0 ? 0 : v->in_round;
    if (round->count == 0 || !is_training(v))
        return validator_broken(v, 11, "its update makes no matrix orthogonal");
    if (v->round >= 0 && (newest_in_round(v) != MICS_STEP_MOMENTUM || !is_of_round(v, step->unit)))
        return validator_broken(v, 11, "another round's momentum is held");
    if (round->index != before)
        return validator_broken(v, 11, "it is not the next unit of its round");
    if (!defers(v) && (v->agreement < 0 || !validator_precedes(v, v->agreement)))
        return validator_broken(v, 11, "it is not behind the agreement");
    v->in_round = before + 1;
    v->round = v->index;
    return check_due(v, step);
}

// Whether a kind of step may follow the newest one of the round that is held, which is done.
static bool may_follow(const validator *v, const mics_step *step)
{
    const mics_round *round = &v->schedule->rounds[step->unit];
    const bool sends = sharding_of(v, step->unit)->optimizer > 1;
    if (v->round < 0 || !is_of_round(v, step->unit) || !validator_precedes(v, v->round))
        return false;
    switch (newest_in_round(v)) {
    case MICS_STEP_MOMENTUM:
        return v->in_round == round->count &&
               step->kind == (sends ? MICS_STEP_MOMENTUM_TO_OWNERS : MICS_STEP_ORTHOGONALISE);
    case MICS_STEP_MOMENTUM_TO_OWNERS:
        return step->kind == MICS_STEP_ORTHOGONALISE;
    case MICS_STEP_ORTHOGONALISE:
        return step->kind == (sends ? MICS_STEP_MOMENTUM_BACK : MICS_STEP_UPDATE);
    default: // MOMENTUM_BACK, UPDATE
        return step->kind == MICS_STEP_UPDATE;
    }
}

mics_status check_round_step(validator *v, const mics_step *step)
{
    if (!may_follow(v, step))
        return validator_broken(v, 11, "the round's step before it is missing, or not done");
    v->round = v->index;
    v->in_round = 0;
    return MICS_OK;
}

// The unit's momentum, if it is made orthogonal, is.
static mics_status check_orthogonal(validator *v, const mics_step *step)
{
    const mics_round *round = &v->schedule->rounds[step->unit];
    if (round->count == 0)
        return MICS_OK;
    if (!may_follow(v, step))
        return validator_broken(v, 11, "its momentum is not orthogonal");
    v->round = ++v->in_round < round->count ? v->index : -1;
    return MICS_OK;
}

mics_status check_update(validator *v, const mics_step *step)
{
    unit_state *unit = &v->units[step->unit];
    MICS_TRY(check_due(v, step));
    MICS_TRY(check_orthogonal(v, step));
    if (unit->updated >= 0 || !mics_schedule_trains(v->schedule, step->unit) ||
        (!defers(v) && (v->agreement < 0 || !validator_precedes(v, v->agreement))))
        return validator_broken(v, 11, "units are updated once, behind the agreement");
    unit->updated = v->index;
    return MICS_OK;
}
