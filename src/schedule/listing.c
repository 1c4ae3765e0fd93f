// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps and the list that takes them.
#include "schedule/listing.h"

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
