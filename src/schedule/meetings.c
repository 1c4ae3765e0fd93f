// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps: when each unit meets, and where what it takes lies in memory.
#include "schedule/meetings.h"
#include "mics/core/ledger.h"

int32_t meeting_states(const mics_schedule *schedule, int32_t unit)
{
    const mics_schedule_spec *spec = &schedule->spec;
    if (schedule->meetings == NULL || !mics_schedule_trains(schedule, unit) ||
        spec->model->units[unit].param_count == 0)
        return 0;
    return spec->outer.moments_every > 0 ? 1 + mics_optimizer_def_get(spec->optimizer)->states : 1;
}

int32_t mics_schedule_period(const mics_schedule *schedule)
{
    const mics_outer *outer = &schedule->spec.outer;
    if (schedule->meetings == NULL)
        return 1;
    return outer->every * (outer->moments_every > 0 ? outer->moments_every : 1);
}

int32_t mics_schedule_windows(const mics_schedule *schedule)
{
    int32_t windows = 0;
    for (int32_t u = 0; schedule->meetings != NULL && u < schedule->spec.model->unit_count; u++) {
        const int32_t window = schedule->meetings[u].window;
        windows = window >= windows ? window + 1 : windows;
    }
    return windows;
}

// ---- when units meet ----
//
// Elements are the model's, without padding: no mesh changes when a unit meets.

static double elems_of(const mics_schedule *schedule, int32_t unit)
{
    return (double)schedule->spec.model->units[unit].elems;
}

// Fragments of consecutive units, of about equal elements and none empty, as numbers in `window`.
static void cut_fragments(mics_schedule *schedule)
{
    const int32_t units = schedule->spec.model->unit_count,
                  fragments = schedule->spec.outer.fragments;
    double all = 0, before = 0;
    int32_t left = 0, fragment = -1;
    for (int32_t u = 0; u < units; u++) {
        const bool meets = meeting_states(schedule, u) > 0;
        all += meets ? elems_of(schedule, u) : 0;
        left += meets;
    }
    for (int32_t u = 0; u < units; u++) {
        if (meeting_states(schedule, u) == 0)
            continue;
        const int32_t middle = (int32_t)((before + elems_of(schedule, u) / 2) / all * fragments);
        if (middle > fragment || fragments - left > fragment) // one for each unit that is left
            fragment++;
        schedule->meetings[u].window = fragment;
        before += elems_of(schedule, u);
        left--;
    }
}

// A fragment's units follow each other from its beginning on, over overlap_steps lists.
static void find_offsets(mics_schedule *schedule, int32_t fragment)
{
    const mics_outer *outer = &schedule->spec.outer;
    const int32_t begin = (int32_t)((int64_t)outer->every * fragment / outer->fragments);
    double all = 0, before = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++)
        all += schedule->meetings[u].window == fragment ? elems_of(schedule, u) : 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        if (schedule->meetings[u].window != fragment)
            continue;
        const int32_t list = (int32_t)(before / all * outer->overlap_steps);
        schedule->meetings[u].offset = (int32_t)(((int64_t)begin + list) % outer->every);
        before += elems_of(schedule, u);
    }
}

// Numbers the offsets that there are, in the order of the units that have them first.
static void number_windows(mics_schedule *schedule)
{
    int32_t windows = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        mics_meeting *m = &schedule->meetings[u], *same = schedule->meetings;
        while (same->offset != m->offset)
            same++;
        if (m->offset >= 0)
            m->window = same == m ? windows++ : same->window;
    }
}

// ---- where they lie ----

static int64_t take_place(int64_t *end, int64_t elems)
{
    const int64_t at = *end;
    *end += elems;
    return at;
}

static void place_unit(mics_schedule *schedule, int32_t unit)
{
    const int64_t elems = schedule->padded_elems[unit];
    const int32_t ranks = mics_schedule_unit_ranks(schedule, unit);
    const int32_t world = ranks * schedule->spec.mesh.islands;
    mics_meeting *m = &schedule->meetings[unit];
    m->anchor = take_place(&schedule->outer_elems, elems / schedule->sharding[unit].optimizer);
    m->momentum = take_place(&schedule->outer_elems, elems / world);
    if (schedule->spec.outer.dtype == MICS_COMM_FP32)
        return;
    m->sent_residual = take_place(&schedule->outer_elems, elems / ranks);
    m->met_residual = take_place(&schedule->outer_elems, elems / world);
}

// Messages of the units of one window lie side by side.
static void place_messages(mics_schedule *schedule)
{
    const int32_t windows = mics_schedule_windows(schedule);
    const int64_t begin = schedule->outer_elems;
    for (int32_t window = 0; window < windows; window++) {
        int64_t end = begin;
        for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
            mics_meeting *m = &schedule->meetings[u];
            if (m->window == window)
                m->message = take_place(
                    &end, meeting_states(schedule, u) *
                              (schedule->padded_elems[u] / schedule->sharding[u].optimizer));
        }
        schedule->outer_elems = end > schedule->outer_elems ? end : schedule->outer_elems;
    }
}

mics_status place_meetings(mics_schedule *schedule)
{
    const int32_t units = schedule->spec.model->unit_count;
    if (schedule->spec.outer.every == 0 || schedule->spec.evaluation_only)
        return MICS_OK;
    MICS_TRY(MICS_NEW(schedule->memory, units, &schedule->meetings));
    for (int32_t u = 0; u < units; u++)
        schedule->meetings[u] = (mics_meeting){-1, -1, -1, -1, -1, -1, -1};
    cut_fragments(schedule);
    for (int32_t fragment = 0; fragment < schedule->spec.outer.fragments; fragment++)
        find_offsets(schedule, fragment);
    number_windows(schedule);
    for (int32_t u = 0; u < units; u++) {
        if (meeting_states(schedule, u) > 0)
            place_unit(schedule, u);
    }
    place_messages(schedule);
    return MICS_OK;
}
