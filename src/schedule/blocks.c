// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where blocks lie: what each unit keeps from forward to backward, its input first.
//
// Units whose blocks go to host memory, and MICS_OFFLOAD_PLACES behind them, take so many places in
// turn. Unit i of them writes unit i + 1's input, so its forward waits until the block that lay
// there, of unit i + 1 - PLACES, is stored. That one comes back behind unit i's backward, which may
// read its output.
#include "schedule/blocks.h"
#include "mics/log.h"

static bool may_offload(const mics_schedule *schedule, int32_t u)
{
    return mics_schedule_has_backward(schedule, u) && schedule->units[u].kept_elems > 0;
}

// Sizes of the places that blocks take in turn.
static mics_status size_places(mics_schedule *schedule, int64_t places[MICS_OFFLOAD_PLACES])
{
    const int32_t stored = schedule->spec.offload_units;
    int32_t count = 0;
    for (int32_t u = 0; u < schedule->spec.model->unit_count; u++) {
        int64_t *place = &places[count % MICS_OFFLOAD_PLACES];
        const int64_t elems = schedule->units[u].kept_elems;
        if (!may_offload(schedule, u))
            continue;
        if (count++ < stored + MICS_OFFLOAD_PLACES && stored > 0 && elems > *place)
            *place = elems;
    }
    const int32_t most = count > MICS_OFFLOAD_PLACES ? count - MICS_OFFLOAD_PLACES : 0;
    schedule->offload_max = schedule->spec.evaluation_only ? 0 : most;
    if (stored > most)
        return mics_fail(MICS_ERR_INVALID,
                         "activations of %d units in host memory: %d of the %d units that keep any "
                         "can be there, as the arena needs places for %d; take at most %d",
                         (int)stored, (int)most, (int)count, (int)MICS_OFFLOAD_PLACES, (int)most);
    return MICS_OK;
}

// One that may be in host memory, number `index` of them; `turn` has the newest ones before it.
static void take_turn(mics_schedule *schedule, int32_t u, int32_t index, const int64_t *places,
                      int32_t turn[MICS_OFFLOAD_PLACES])
{
    const int32_t stored = schedule->spec.offload_units,
                  displaced = index + 1 - MICS_OFFLOAD_PLACES;
    mics_unit_plan *plan = &schedule->units[u];
    for (int i = 0; i < index % MICS_OFFLOAD_PLACES; i++)
        plan->kept_at += places[i];
    turn[index % MICS_OFFLOAD_PLACES] = u;
    if (displaced >= 0 && displaced < stored)
        plan->displaced = turn[displaced % MICS_OFFLOAD_PLACES];
    if (index < stored) {
        plan->host_at = schedule->offload_elems;
        schedule->offload_elems += plan->kept_elems;
    }
}

mics_status place_blocks(mics_schedule *schedule, int64_t *end_out)
{
    const mics_model *model = schedule->spec.model;
    const int32_t stored = schedule->spec.offload_units;
    int64_t places[MICS_OFFLOAD_PLACES] = {0}, end = 0;
    int32_t before = 0, index = 0, turn[MICS_OFFLOAD_PLACES];
    MICS_TRY(size_places(schedule, places));
    for (int i = 0; i < MICS_OFFLOAD_PLACES; i++)
        end += places[i];
    for (int32_t u = 0; u < model->unit_count; u++) {
        mics_unit_plan *plan = &schedule->units[u];
        plan->host_at = plan->displaced = -1;
        if (!mics_unit_computes(&model->units[u]))
            continue;
        if (stored > 0 && may_offload(schedule, u) && index < stored + MICS_OFFLOAD_PLACES) {
            take_turn(schedule, u, index++, places, turn);
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
