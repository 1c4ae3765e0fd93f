// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where blocks lie: what each unit keeps from forward to backward, its input first.
//
// Units whose blocks go to host memory, and MICS_OFFLOAD_PLACES more behind the last of them, take
// so many places in turn, number i place i % PLACES. They are spread over all units, so that copies
// are. The unit before number i writes number i's input, so its forward waits until number i - PLACES
// is stored. That one comes back behind the same unit's backward, which may read its output.
#include "mics/core/ledger.h"
#include "mics/log.h"
#include "schedule/activations.h"

// Units that take a few places in turn.
typedef struct rotation {
    int32_t candidates;                  // units that keep anything for a backward
    int32_t count;                       // of them, those that rotate
    int32_t stored;                      // of these, the first ones, in host memory
    int64_t places[MICS_OFFLOAD_PLACES]; // elements of each place
    mics_offload offload;
} rotation;

static bool may_offload(const mics_schedule *schedule, int32_t u)
{
    return mics_schedule_has_backward(schedule, u) && schedule->units[u].kept_elems > 0;
}

// Whether candidate number `index` rotates: where index x count / candidates passes a whole number.
static bool rotates(const rotation *t, int32_t index)
{
    return (index + 1) * (int64_t)t->count % t->candidates < t->count;
}

// Needs: at most offload_max units.
static rotation find_rotation(const mics_schedule *schedule, int32_t units)
{
    const int32_t all = schedule->spec.model->unit_count;
    rotation t = {.stored = units, .count = units > 0 ? units + MICS_OFFLOAD_PLACES : 0};
    for (int32_t u = 0; u < all; u++)
        t.candidates += may_offload(schedule, u);
    int32_t index = 0, turn = 0;
    for (int32_t u = 0; u < all; u++) {
        const int64_t elems = schedule->units[u].kept_elems;
        if (!may_offload(schedule, u) || !rotates(&t, index++))
            continue;
        int64_t *place = &t.places[turn % MICS_OFFLOAD_PLACES];
        *place = elems > *place ? elems : *place;
        t.offload.host_elems += turn++ < units ? elems : 0;
        t.offload.spared_elems += elems;
    }
    for (int i = 0; i < MICS_OFFLOAD_PLACES; i++)
        t.offload.spared_elems -= t.places[i];
    return t;
}

mics_offload mics_schedule_offload(const mics_schedule *schedule, int32_t units)
{
    return find_rotation(schedule, units).offload;
}

// Number `index` of those that rotate; `newest` has the ones before it, by place.
static void place_rotating(mics_schedule *schedule, const rotation *t, int32_t u, int32_t before,
                           int32_t index, int32_t newest[MICS_OFFLOAD_PLACES])
{
    const int32_t place = index % MICS_OFFLOAD_PLACES, earlier = index - MICS_OFFLOAD_PLACES;
    mics_unit_plan *plan = &schedule->units[u];
    plan->kept_at = 0;
    for (int32_t i = 0; i < place; i++)
        plan->kept_at += t->places[i];
    if (earlier >= 0 && earlier < t->stored)
        schedule->units[before].displaced = newest[place];
    newest[place] = u;
    if (index < t->stored) {
        plan->host_at = schedule->offload_elems;
        schedule->offload_elems += plan->kept_elems;
    }
}

mics_status place_blocks(mics_schedule *schedule, int64_t *end_out)
{
    const mics_model *model = schedule->spec.model;
    const int32_t units = schedule->spec.offload_units;
    const rotation t = find_rotation(schedule, units);
    int32_t before = 0, candidate = 0, index = 0, newest[MICS_OFFLOAD_PLACES];
    int64_t end = 0;
    if (!schedule->spec.evaluation_only && t.candidates > MICS_OFFLOAD_PLACES)
        schedule->offload_max = t.candidates - MICS_OFFLOAD_PLACES;
    if (units > schedule->offload_max)
        return mics_fail(
            MICS_ERR_INVALID,
            "run.offload_activations %d: of the %d units that keep activations all but "
            "%d can be in host memory; take at most %d",
            (int)units, (int)t.candidates, (int)MICS_OFFLOAD_PLACES, (int)schedule->offload_max);
    for (int i = 0; i < MICS_OFFLOAD_PLACES; i++)
        end += t.places[i];
    for (int32_t u = 0; u < model->unit_count; u++) {
        mics_unit_plan *plan = &schedule->units[u];
        plan->host_at = plan->displaced = -1;
        if (!mics_unit_computes(&model->units[u]))
            continue;
        if (may_offload(schedule, u) && rotates(&t, candidate++)) {
            place_rotating(schedule, &t, u, before, index++, newest);
        } else {
            plan->kept_at = end;
            end += plan->kept_elems;
        }
        plan->tensor_at[0] = u == 0 ? -1 : plan->kept_at;
        if (u > 0)
            schedule->units[before].tensor_at[model->units[before].out] = plan->kept_at;
        before = u;
    }
    *end_out = end;
    return MICS_OK;
}
