// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps: where the steps of meetings stand in the training list.
//
// One list is for all training steps, and streams pass over steps that are not due, in order
// (mics_step_is_due). So to wait for a unit's adoption is also to wait for its update before it.
//
// No overlap. Where no update is deferred, meetings are the head of the list: all changes and sums,
// then all outer steps, then all adoptions. Deferred updates come unit by unit, as forward reads
// them, and a meeting directly follows its round's updates. All updates ahead of forward would keep
// that waiting in every list, for the sake of one in `every`.
//
// Overlap. Units due in one list share its FLOPs by their elements, from their first change on. A
// unit's sum begins with its share. The outer step and the gather follow in the middle of that, so a
// transfer has half a share before computation waits for it.
#include "schedule/meeting_steps.h"
#include "schedule/collectives.h"
#include "schedule/listing.h"
#include "schedule/meetings.h"

// ---- steps of a meeting ----

void reset_meetings(builder *b)
{
    const mics_schedule *schedule = b->schedule;
    const int32_t units = schedule->spec.model->unit_count;
    b->world_agreed = -1;
    for (int32_t u = 0; u < units; u++) {
        b->meetings[u] = (unit_meeting){.newest = MICS_STEP_KINDS, .last = {-1, -1, -1}};
        b->windows[u] = (meeting_window){.begin = -1};
    }
    for (int32_t u = 0; u < units; u++) {
        if (meeting_states(schedule, u) > 0)
            b->windows[schedule->meetings[u].window].elems += (double)schedule->padded_elems[u];
    }
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

// A kind of step of a unit, of all that meets, behind step `after` (-1: none).
static mics_status list_kind(builder *b, mics_step_kind kind, int32_t unit, int32_t after)
{
    const stage_list stages = stages_of(b, kind, unit);
    for (int32_t state = 0; state < meeting_states(b->schedule, unit); state++) {
        for (int32_t at = 0; at < stages.count; at++) {
            mics_step step = mics_step_kind_sends_meeting(kind)
                                 ? meeting_step(b, kind, stages.at[at], unit, state)
                                 : blank_step(kind, unit, -1);
            wait_on(b, &step, after);
            MICS_TRY(add_meeting_step(b, step, state));
        }
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
    MICS_TRY(list_kind(b, MICS_STEP_MEET_UPDATE, unit, b->world_agreed));
    MICS_TRY(list_kind(b, MICS_STEP_MEET_GATHER, unit, -1));
    return mics_schedule_unit_ranks(b->schedule, unit) > sharding_of(b, unit)->optimizer
               ? list_kind(b, MICS_STEP_MEET_SPREAD, unit, -1)
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
    if (whole)
        MICS_TRY(list_world_agreement(b));
    for (int32_t i = 0; i < count; i++) {
        const int32_t unit = units == NULL ? i : units[i];
        MICS_TRY(list_kind(b, MICS_STEP_MEET_CHANGE, unit, -1));
        if (whole)
            MICS_TRY(list_kind(b, MICS_STEP_MEET_SCATTER, unit, -1));
    }
    for (int32_t i = 0; i < count && whole; i++)
        MICS_TRY(list_outer_step(b, units == NULL ? i : units[i]));
    for (int32_t i = 0; i < count && whole; i++) {
        const int32_t unit = units == NULL ? i : units[i];
        MICS_TRY(list_kind(b, MICS_STEP_MEET_ADOPT, unit, -1));
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
    const double at = index < b->pass_count ? b->passes[index].flops : b->flops;
    if (window->begin < 0)
        window->begin = at;
    const double all = b->flops - window->begin;
    const double share = (double)b->schedule->padded_elems[unit] / window->elems;
    if (meeting->newest == MICS_STEP_MEET_CHANGE) {
        if (index < b->pass_count && at < window->begin + window->begun * all)
            return MICS_OK;
        meeting->begun = at;
        window->begun += share;
        MICS_TRY(list_kind(b, MICS_STEP_MEET_SCATTER, unit, -1));
    }
    return index == b->pass_count || at >= meeting->begun + share / 2 * all
               ? list_outer_step(b, unit)
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
        MICS_TRY(list_kind(b, MICS_STEP_MEET_ADOPT, u, agree));
    return MICS_OK;
}
