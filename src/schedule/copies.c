// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of blocks of activations to host memory, and back. Both ways are in list order on one
// stream: a block in host memory is not overwritten before it was fetched.
#include "schedule/copies.h"
#include "schedule/listing.h"

// The newest copy of a unit's block, of one micro-batch in flight.
static int32_t *copy_of(const builder *b, int32_t unit, int32_t in_flight)
{
    return &b->copied[unit * b->schedule->spec.layered_micro_steps + in_flight];
}

void wait_for_copies(const builder *b, pass p, mics_step *step)
{
    const int32_t unit = p.backward ? p.unit : b->schedule->units[p.unit].displaced;
    if (unit >= 0)
        wait_on(b, step, *copy_of(b, unit, p.in_flight));
}

mics_status list_copy(builder *b, pass p)
{
    const mics_schedule *schedule = b->schedule;
    const int32_t unit = p.backward ? schedule->units[p.unit].displaced : p.unit;
    const mics_unit_plan *plan = unit >= 0 ? &schedule->units[unit] : NULL;
    if (plan == NULL || plan->host_at < 0 || b->list != &schedule->lists[MICS_PHASE_TRAIN])
        return MICS_OK;
    mics_step step = blank_step(p.backward ? MICS_STEP_FETCH : MICS_STEP_STORE, unit, p.micro_step);
    step.stream = MICS_STREAM_COPY;
    step.in_flight = p.in_flight;
    step.from = p.backward ? plan->host_at : plan->kept_at;
    step.to = p.backward ? plan->kept_at : plan->host_at;
    step.block_elems = plan->kept_elems;
    step.block_bytes = (size_t)plan->kept_elems *
                       mics_precision_bytes(schedule->spec.precision, MICS_MEM_ACTIVATIONS);
    wait_on(b, &step, b->newest[MICS_STREAM_COMPUTE]);
    return add_step(b, step, copy_of(b, unit, p.in_flight));
}
