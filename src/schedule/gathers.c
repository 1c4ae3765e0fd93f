// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps that make a unit's parameters readable before a pass: replica gathers, deferred updates,
// parameter sync, gathers.
#include "schedule/gathers.h"
#include "schedule/boundary.h"
#include "schedule/collectives.h"
#include "schedule/listing.h"

// Of a unit whose members see each other's shards: nothing moves, and nothing changes until the
// step ends, so one barrier is enough.
static mics_status list_barrier(builder *b, int32_t unit, int32_t micro_step)
{
    mics_step step = comm_step(b, MICS_STEP_GATHER, MICS_STAGE_WHOLE, &unit, 1, micro_step);
    wait_on(b, &step, b->synced[unit]);
    wait_on(b, &step, b->updated[unit]);
    return add_step(b, step, &b->ready[unit]);
}

static mics_status list_gather(builder *b, int32_t unit, int32_t micro_step)
{
    MICS_TRY(slots_take(&b->params, unit, b->schedule->padded_elems[unit]));
    slot *taken = &b->params.slots[b->params.slot_of[unit]];
    const stage_list stages = stages_of(b, MICS_STEP_GATHER, unit);
    for (int32_t at = 0; at < stages.count; at++) {
        mics_step step = comm_step(b, MICS_STEP_GATHER, stages.at[at], &unit, 1, micro_step);
        step.uses[0].param_slot = b->params.slot_of[unit];
        wait_on_all(b, &step, taken->last);
        wait_on(b, &step, b->synced[unit]);
        wait_on(b, &step, b->updated[unit]);
        MICS_TRY(add_step(b, step, &b->ready[unit]));
        taken->last[step.stream] = b->ready[unit];
    }
    return MICS_OK;
}

// Lists what makes a unit readable, if it is not.
static mics_status list_readable(builder *b, int32_t unit, int32_t micro_step)
{
    MICS_TRY(list_deferred_update(b, unit));
    MICS_TRY(list_param_sync(b, unit));
    if (mics_schedule_shares(b->schedule, unit))
        return b->ready[unit] == b->synced[unit] ? list_barrier(b, unit, micro_step) : MICS_OK;
    return sharding_of(b, unit)->params > 1 && b->params.slot_of[unit] < 0
               ? list_gather(b, unit, micro_step)
               : MICS_OK;
}

// Whether a unit is updated in this list and nobody has made it readable since. Its update may be
// there, with its round's; gathers come in the same order as without rounds.
static bool is_pending(const builder *b, int32_t unit)
{
    return defers_updates(b) && b->ready[unit] < 0 && mics_schedule_trains(b->schedule, unit);
}

bool sends_updated(const builder *b, pass p)
{
    const unit_set *reads = units_read(b, p);
    for (int32_t i = 0; i < reads->count; i++) {
        if (is_pending(b, reads->units[i]) && is_sent_when_updated(b, reads->units[i]))
            return true;
    }
    return false;
}

// Units that are updated and not sent come later (list_late_updates).
mics_status list_gathers(builder *b, pass p)
{
    const unit_set *reads = units_read(b, p);
    for (int32_t i = 0; i < reads->count; i++) {
        const int32_t unit = reads->units[i];
        if (!is_pending(b, unit) || is_sent_when_updated(b, unit))
            MICS_TRY(list_readable(b, unit, p.micro_step));
    }
    return MICS_OK;
}

mics_status list_replica_gathers(builder *b, pass p)
{
    const unit_set *reads = units_read(b, p);
    for (int32_t i = 0; i < reads->count; i++)
        MICS_TRY(list_replica_gather(b, reads->units[i]));
    return MICS_OK;
}

// Deferred updates of all that a pass touches, directly before it.
mics_status list_late_updates(builder *b, pass p)
{
    const unit_set *sets[] = {units_read(b, p), units_written(b, p)};
    for (int set = 0; set < 2 && defers_updates(b); set++) {
        for (int32_t i = 0; i < sets[set]->count; i++) {
            const int32_t unit = sets[set]->units[i];
            if (!is_sent_when_updated(b, unit))
                MICS_TRY(list_readable(b, unit, p.micro_step));
        }
    }
    return list_deferred_update(b, p.unit); // of one without parameters
}
