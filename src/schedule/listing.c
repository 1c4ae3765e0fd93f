// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps and the list that takes them.
#include "schedule/listing.h"
#include "schedule/rules.h"

mics_status add_step(builder *b, mics_step step, int32_t *index_out)
{
    mics_step_list *list = b->list;
    if (list->count == b->capacity) {
        void *steps = list->steps;
        const size_t capacity = 2 * (size_t)list->count;
        MICS_TRY(
            mics_realloc(b->schedule->memory, MICS_MEM_HOST, capacity * sizeof(mics_step), &steps));
        list->steps = steps;
        b->capacity = (int32_t)capacity;
    }
    b->newest[step.stream] = list->count;
    *index_out = list->count;
    list->steps[list->count++] = step;
    return MICS_OK;
}

void wait_on(const builder *b, mics_step *step, int32_t index)
{
    if (index < 0)
        return;
    const mics_stream stream = b->list->steps[index].stream;
    if (stream != step->stream && index > step->wait[stream])
        step->wait[stream] = index;
}

void wait_on_all(const builder *b, mics_step *step, const int32_t last[MICS_STREAMS])
{
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        wait_on(b, step, last[stream]);
}

mics_step blank_step(mics_step_kind kind, int32_t unit, int32_t micro_step)
{
    mics_step step = {.kind = kind, .unit = unit, .micro_step = micro_step};
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        step.wait[stream] = -1;
    return step;
}

// ---- copies of activations ----
//
// Both ways are in list order on one stream, so no block in host memory is overwritten before it was
// fetched.

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
