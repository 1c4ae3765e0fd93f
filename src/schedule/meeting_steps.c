// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps: where the steps of meetings stand in the training list.
//
// The list is one for all training steps. A meeting's steps are due in every `every`th of them, and
// no other step may need one that is not due (mics_step_is_due). What a step waits for on a stream is
// the newest one there, and steps that are not due are passed over in order; so a wait for a unit's
// adoption is also one for its update before it.
//
// No overlap. Where no update is deferred, all meetings are the head of the list: changes and their
// sums first, so that links have work from the first change on. Where updates are, they are listed
// unit by unit as forward needs them, and a unit's meeting directly follows its round's updates: all
// updates ahead of the first forward would keep that waiting in every list, for the sake of one in
// `every`.
//
// Overlap. The units due in a list share its passes by their elements. A unit's sum begins with its
// share, and in the middle of that follow the outer step and the gather: a transfer has half a share
// before computation waits for it. Sums of a fragment that is updated late begin with its first
// change.
#include "schedule/meeting_steps.h"
#include "schedule/collectives.h"
#include "schedule/listing.h"
#include "schedule/meetings.h"

// ---- steps of a meeting ----

static void share_passes(builder *b)
{
    const int32_t units = b->schedule->spec.model->unit_count;
    for (int32_t u = 0; u < units; u++)
        b->windows[u] = (meeting_window){.begin = -1};
    for (int32_t u = 0; u < units; u++) {
        if (unit_meets(b->schedule, u))
            b->windows[b->schedule->meetings[u].window].elems +=
                (double)b->schedule->padded_elems[u];
    }
    for (int32_t u = 0; u < units; u++) {
        if (!unit_meets(b->schedule, u))
            continue;
        meeting_window *window = &b->windows[b->schedule->meetings[u].window];
        b->meetings[u].before = window->listed;
        b->meetings[u].share = (double)b->schedule->padded_elems[u] / window->elems;
        window->listed += b->meetings[u].share;
    }
}

void reset_meetings(builder *b)
{
    b->world_agreed = -1;
    if (b->schedule->meetings == NULL)
        return;
    for (int32_t u = 0; u < b->schedule->spec.model->unit_count; u++) {
        b->meetings[u] = (unit_meeting){.newest = MICS_STEP_KINDS};
        for (int32_t state = 0; state < MEETING_STATES; state++)
            b->meetings[u].last[state] = -1;
    }
    share_passes(b);
}

// Every moments_every-th meeting is of the states too.
static mics_status add_meeting_step(builder *b, mics_step step, int32_t state)
{
    const mics_outer *outer = &b->schedule->spec.outer;
    unit_meeting *meeting = &b->meetings[step.unit];
    step.state = state;
    step.period = outer->every;
    step.offset = b->schedule->meetings[step.unit].offset;
    if (state > 0) {
        step.period *= outer->moments_every;
        step.offset += step.offset > 0 ? step.period - outer->every : 0;
    }
    wait_on(b, &step, meeting->last[state]);
    meeting->newest = step.kind;
    return add_step(b, step, &meeting->last[state]);
}

static mics_status list_compute(builder *b, mics_step_kind kind, int32_t unit, int32_t after)
{
    for (int32_t state = 0; state < meeting_states(b->schedule, unit); state++) {
        mics_step step = blank_step(kind, unit, -1);
        wait_on(b, &step, after);
        MICS_TRY(add_meeting_step(b, step, state));
    }
    return MICS_OK;
}

static mics_status list_comm(builder *b, mics_step_kind kind, int32_t unit)
{
    const stage_list stages = stages_of(b, kind, unit);
    for (int32_t state = 0; state < meeting_states(b->schedule, unit); state++) {
        for (int32_t at = 0; at < stages.count; at++)
            MICS_TRY(add_meeting_step(b, meeting_step(b, kind, stages.at[at], unit, state), state));
    }
    return MICS_OK;
}

// Once a list, ahead of what needs it.
static mics_status list_world_agreement(builder *b)
{
    if (b->schedule->meetings == NULL || b->world_agreed >= 0)
        return MICS_OK;
    return add_step(b, comm_step(b, MICS_STEP_AGREE_WORLD, MICS_STAGE_WHOLE, NULL, 0, -1),
                    &b->world_agreed);
}

static mics_status list_outer_step(builder *b, int32_t unit)
{
    if (meeting_states(b->schedule, unit) == 0)
        return MICS_OK;
    MICS_TRY(list_world_agreement(b));
    MICS_TRY(list_compute(b, MICS_STEP_MEET_UPDATE, unit, b->world_agreed));
    MICS_TRY(list_comm(b, MICS_STEP_MEET_GATHER, unit));
    return mics_schedule_unit_ranks(b->schedule, unit) > sharding_of(b, unit)->optimizer
               ? list_comm(b, MICS_STEP_MEET_SPREAD, unit)
               : MICS_OK;
}

// ---- their places in the list ----

static bool overlaps(const builder *b)
{
    return b->schedule->meetings != NULL && b->schedule->spec.outer.overlap_steps > 0;
}

mics_status list_meetings(builder *b, const int32_t *units, int32_t count)
{
    const bool whole = !overlaps(b);
    for (int32_t i = 0; i < count; i++) {
        const int32_t unit = units == NULL ? i : units[i];
        MICS_TRY(list_compute(b, MICS_STEP_MEET_CHANGE, unit, -1));
        if (whole)
            MICS_TRY(list_comm(b, MICS_STEP_MEET_SCATTER, unit));
    }
    for (int32_t i = 0; i < count && whole; i++)
        MICS_TRY(list_outer_step(b, units == NULL ? i : units[i]));
    for (int32_t i = 0; i < count && whole; i++) {
        const int32_t unit = units == NULL ? i : units[i];
        MICS_TRY(list_compute(b, MICS_STEP_MEET_ADOPT, unit, -1));
        if (meeting_states(b->schedule, unit) > 0)
            b->updated[unit] = b->newest[MICS_STREAM_COMPUTE];
    }
    return MICS_OK;
}

// A unit's sum, then its outer step, where the share of the passes that it has says so.
static mics_status list_beside(builder *b, int32_t unit, int32_t index)
{
    unit_meeting *meeting = &b->meetings[unit];
    if (meeting->newest != MICS_STEP_MEET_CHANGE && meeting->newest != MICS_STEP_MEET_SCATTER)
        return MICS_OK;
    meeting_window *window = &b->windows[b->schedule->meetings[unit].window];
    if (meeting->newest == MICS_STEP_MEET_CHANGE) {
        window->begin = window->begin < 0 ? index : window->begin;
        if (index < window->begin + meeting->before * (b->pass_count - window->begin))
            return MICS_OK;
        meeting->begun = index;
        MICS_TRY(list_comm(b, MICS_STEP_MEET_SCATTER, unit));
    }
    const double half = meeting->share / 2 * (b->pass_count - window->begin);
    return index == b->pass_count || index >= meeting->begun + half ? list_outer_step(b, unit)
                                                                    : MICS_OK;
}

mics_status list_meetings_beside(builder *b, int32_t index)
{
    if (!is_training(b))
        return MICS_OK;
    MICS_TRY(list_world_agreement(b));
    for (int32_t u = 0; overlaps(b) && u < b->schedule->spec.model->unit_count; u++)
        MICS_TRY(list_beside(b, u, index));
    return MICS_OK;
}

mics_status list_adoptions(builder *b, int32_t agree)
{
    for (int32_t u = 0; overlaps(b) && u < b->schedule->spec.model->unit_count; u++)
        MICS_TRY(list_compute(b, MICS_STEP_MEET_ADOPT, u, agree));
    return MICS_OK;
}
