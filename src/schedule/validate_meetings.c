// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Invariants 17 to 20 of validate.c: meetings of islands.
#include "mics/core/agreement.h"
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "schedule/meetings.h"
#include "schedule/validate.h"

static bool overlaps(const validator *v)
{
    return v->schedule->spec.outer.overlap_steps > 0;
}

// ---- 17: one meeting ----

static mics_status check_turn(const validator *v, const mics_step *step)
{
    const mics_outer *outer = &v->schedule->spec.outer;
    chain_state *chain = &v->units[step->unit].meets[step->state];
    const int32_t period = step->state > 0 ? outer->every * outer->moments_every : outer->every;
    const bool spreads =
        mics_schedule_unit_ranks(v->schedule, step->unit) > sharding_of(v, step->unit)->optimizer;
    const bool skips = chain->kind == MICS_STEP_MEET_GATHER && !spreads;
    const int next = chain->last < 0 ? MICS_STEP_MEET_CHANGE // kinds are in order
                     : skips         ? MICS_STEP_MEET_ADOPT
                                     : (int)chain->kind + 1;
    if (step->period != period ||
        step->offset % outer->every != v->schedule->meetings[step->unit].offset)
        return validator_broken(v, 17, "it is due when its unit does not meet");
    if ((chain->last < 0 || validator_completed(chain)) &&
        ((int)step->kind != next || !validator_precedes(v, chain->last)))
        return validator_broken(v, 17, "the meeting's step before it is missing, or not done");
    return validator_go_on(v, chain);
}

static mics_status check_link(const validator *v, const mics_step *step)
{
    const bool spreads = step->kind == MICS_STEP_MEET_SPREAD;
    const mics_comm_dtype sent =
        step->state > 0 || spreads ? MICS_COMM_FP32 : v->schedule->spec.outer.dtype;
    if (!mics_step_is_comm(step))
        return MICS_OK;
    return step->axis == (spreads ? MICS_AXIS_REPLICATION : MICS_AXIS_OUTER) &&
                   step->dtype.held == MICS_COMM_FP32 && step->dtype.sent == sent
               ? MICS_OK
               : validator_broken(v, 17, "it is not of the ranks, or numbers, that meet");
}

// ---- 18: masters ----

// Of the training step that the walk is of.
static bool is_due(const validator *v, int32_t unit, int32_t state)
{
    const mics_outer *outer = &v->schedule->spec.outer;
    const int64_t left = v->number - 1, period = outer->every;
    const mics_meeting *meetings = v->schedule->meetings;
    if (meetings == NULL || state >= meeting_states(v->schedule, unit) || left < 1)
        return false;
    return left % period == meetings[unit].offset &&
           (state == 0 || ((left + period - 1) / period) % outer->moments_every == 0);
}

static bool is_adopted(const validator *v, int32_t unit)
{
    bool adopted = true;
    for (int32_t state = 0; state < MEETING_STATES; state++) {
        const chain_state *chain = &v->units[unit].meets[state];
        adopted = adopted && (!is_due(v, unit, state) ||
                              (chain->last >= 0 && chain->kind == MICS_STEP_MEET_ADOPT &&
                               validator_precedes(v, chain->last)));
    }
    return adopted;
}

mics_status check_adopted(const validator *v, const mics_step *step)
{
    const bool passes = step->kind == MICS_STEP_FORWARD || step->kind == MICS_STEP_BACKWARD;
    const bool reads =
        passes || step->kind == MICS_STEP_PARAM_SYNC || step->kind == MICS_STEP_GATHER;
    const bool updates = step->kind == MICS_STEP_UPDATE && !mics_schedule_defers(v->schedule);
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(v->schedule, step, &count);
    for (int32_t i = 0; i < (passes ? step->use_count : count); i++) {
        if ((updates || (reads && !overlaps(v))) &&
            !is_adopted(v, passes ? step->uses[i].unit : units[i]))
            return validator_broken(v, 18, "it takes what is to meet first");
    }
    return MICS_OK;
}

static mics_status check_change(const validator *v, int32_t unit)
{
    const int32_t updated = v->units[unit].updated;
    return (mics_schedule_defers(v->schedule) ? updated >= 0 && validator_precedes(v, updated)
                                              : updated < 0)
               ? MICS_OK
               : validator_broken(v, 18, "it is not of what the step before left");
}

static mics_status check_adoption(const validator *v, int32_t unit)
{
    const bool agreed = v->agreement >= 0 && validator_precedes(v, v->agreement);
    return !overlaps(v) ||
                   (agreed && (mics_schedule_defers(v->schedule) || v->units[unit].updated < 0))
               ? MICS_OK // without overlap check_adopted has what comes behind it
               : validator_broken(v, 18, "parameters may be read, or an update is lost");
}

mics_status check_meeting(validator *v, const mics_step *step)
{
    if (!is_training(v) || step->state < 0 ||
        step->state >= meeting_states(v->schedule, step->unit))
        return validator_broken(v, 17, "there is nothing that meets");
    MICS_TRY(check_turn(v, step));
    MICS_TRY(check_link(v, step));
    switch (step->kind) {
    case MICS_STEP_MEET_CHANGE:
        return check_change(v, step->unit);
    case MICS_STEP_MEET_UPDATE:
        return v->world_agreement >= 0 && validator_precedes(v, v->world_agreement)
                   ? MICS_OK
                   : validator_broken(v, 19, "nobody knows yet how many tokens counted");
    case MICS_STEP_MEET_ADOPT:
        return check_adoption(v, step->unit);
    default:
        return MICS_OK;
    }
}

mics_status check_meetings_end(const validator *v)
{
    const bool several = is_training(v) && v->schedule->meetings != NULL;
    if (several != (v->world_agreement >= 0))
        return validator_broken(v, 19, "islands never agree, or one does with itself");
    for (int32_t u = 0; u < units_of(v); u++) {
        for (int32_t state = 0; state < MEETING_STATES; state++) {
            const chain_state *chain = &v->units[u].meets[state];
            if (is_due(v, u, state) != (chain->last >= 0) ||
                (chain->last >= 0 && chain->kind != MICS_STEP_MEET_ADOPT))
                return validator_broken(v, 17, "a meeting that is due is not complete");
        }
    }
    return MICS_OK;
}

// ---- 19: the agreement of islands ----

mics_status check_world_agreement(validator *v, const mics_step *step)
{
    if (v->world_agreement >= 0 || !is_training(v) || step->axis != MICS_AXIS_WORLD ||
        step->stage != MICS_STAGE_WHOLE || step->period != 0 ||
        step->block_bytes != sizeof(mics_agreement))
        return validator_broken(v, 19, "islands agree once a training step, all ranks of them");
    v->world_agreement = v->index;
    return MICS_OK;
}

// ---- 20: the arena ----

// What is kept, and behind it a window's messages, lie in the order of units.
static bool lie_apart(const mics_schedule *schedule, int32_t window)
{
    int64_t kept = 0, first = -1, message = 0;
    bool apart = true;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        const mics_meeting *m = &schedule->meetings[u];
        const int32_t states = meeting_states(schedule, u);
        const int64_t sent = schedule->padded_elems[u] / mics_schedule_unit_ranks(schedule, u),
                      met = sent / schedule->spec.mesh.islands,
                      shard = schedule->padded_elems[u] / schedule->sharding[u].optimizer;
        const int64_t places[][2] = {{m->anchor, shard},
                                     {m->momentum, met},
                                     {m->sent_residual, sent},
                                     {m->met_residual, met}};
        const int count = schedule->spec.outer.dtype == MICS_COMM_FP32 ? 2 : 4;
        for (int k = 0; states > 0 && k < count; k++) {
            apart = apart && places[k][0] >= kept;
            kept = places[k][0] + places[k][1];
        }
        if (m->window != window)
            continue;
        first = first < 0 ? m->message : first;
        apart = apart && m->message >= message;
        message = m->message + states * shard;
    }
    return apart && first >= kept && message <= schedule->outer_elems;
}

mics_status check_places(const mics_schedule *schedule)
{
    for (int32_t window = 0; window < mics_schedule_windows(schedule); window++) {
        if (!lie_apart(schedule, window))
            return mics_fail(MICS_ERR_INVALID,
                             "schedule: what meets in window %d breaks invariant 20: it lies where "
                             "something else does, or outside; this is a defect of mics",
                             (int)window);
    }
    return MICS_OK;
}
