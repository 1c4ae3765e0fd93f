// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The events of a list: between streams, for times, and to wait for a device that is done later
// than the host, which says what it was doing when it is late. The threads of the streams enqueue;
// only what waits for the agreement waits for the device.
#include "engine/events.h"
#include "base/clock.h"
#include "engine/status.h"
#include "engine/watch.h"
#include "mics/log.h"
#include <stdio.h>
#include <time.h>

// How often the host asks whether an event is reached, and how often what else may have happened.
enum { POLL_NS = 20000 };
static const double look_us = 10000;

// ---- events ----

static int32_t list_event(const mics_engine *engine, int32_t index, bool end)
{
    const mics_schedule *schedule = engine->schedule;
    const int32_t first =
        engine->phase == MICS_PHASE_TRAIN ? 0 : schedule->lists[MICS_PHASE_TRAIN].count;
    return 2 * (first + index) + end;
}

static int32_t stream_event(const mics_engine *engine, mics_stream stream)
{
    const mics_step_list *lists = engine->schedule->lists;
    return 2 * (lists[MICS_PHASE_TRAIN].count + lists[MICS_PHASE_EVAL].count) + (int32_t)stream;
}

int32_t mics_engine_events(const mics_schedule *schedule)
{
    return 2 * (schedule->lists[MICS_PHASE_TRAIN].count + schedule->lists[MICS_PHASE_EVAL].count) +
           MICS_STREAMS;
}

void device_begin_streams(mics_engine *engine, mics_stream thread)
{
    const mics_device *device = engine->device;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (!stream_served(engine, thread, (mics_stream)stream))
            continue;
        for (int other = 0; other < MICS_STREAMS; other++) {
            if (other != stream)
                device->ops->wait(device->ctx, stream, stream_event(engine, (mics_stream)other));
        }
    }
    if (thread == MICS_STREAM_COMPUTE && !engine->completing)
        device->ops->zero(device->ctx, MICS_STREAM_COMPUTE, engine->sums, sizeof *engine->sums);
}

void device_end_streams(mics_engine *engine, mics_stream thread)
{
    const mics_device *device = engine->device;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (stream_served(engine, thread, (mics_stream)stream))
            device->ops->record(device->ctx, stream, stream_event(engine, (mics_stream)stream));
    }
}

// The newest step of a stream that runs, up to `index`; -1: none. Who waits for a step that does not
// run waits for that.
static int32_t newest_run(const mics_engine *engine, mics_stream stream, int32_t index)
{
    const mics_step *steps = engine->list->steps;
    while (index >= 0 && (steps[index].stream != stream || !step_runs(engine, &steps[index])))
        index--;
    return index;
}

void device_begin_step(mics_engine *engine, int32_t index)
{
    const mics_device *device = engine->device;
    const mics_step *step = &engine->list->steps[index];
    const int32_t stream = (int32_t)step->stream;
    char name[MICS_NAME_BYTES + 32];
    for (int other = 0; other < MICS_STREAMS; other++) {
        const int32_t awaited = newest_run(engine, (mics_stream)other, step->wait[other]);
        if (awaited >= 0)
            device->ops->wait(device->ctx, stream, list_event(engine, awaited, true));
    }
    device->ops->record(device->ctx, stream, list_event(engine, index, false));
    snprintf(name, sizeof name, "%s %s", mics_step_text(step->kind, step->stage),
             step->unit >= 0 ? engine->schedule->spec.model->units[step->unit].name : "");
    device->ops->range_begin(device->ctx, name);
}

void device_end_step(mics_engine *engine, int32_t index)
{
    const mics_device *device = engine->device;
    device->ops->range_end(device->ctx);
    device->ops->record(device->ctx, (int32_t)engine->list->steps[index].stream,
                        list_event(engine, index, true));
}

void device_pass_step(mics_engine *engine, int32_t index)
{
    const mics_device *device = engine->device;
    for (int end = 0; end < 2; end++)
        device->ops->record(device->ctx, (int32_t)engine->list->steps[index].stream,
                            list_event(engine, index, end));
}

// ---- waiting ----

// How far the device has come: by stream, the first step of the list that it has not ended.
typedef struct progress {
    int32_t at[MICS_STREAMS];
    double moved_us, looked_us;
} progress;

static int32_t next_of_stream(const mics_engine *engine, mics_stream stream, int32_t index)
{
    const mics_step_list *list = engine->list;
    while (index < list->count &&
           (list->steps[index].stream != stream || !step_runs(engine, &list->steps[index])))
        index++;
    return index;
}

static progress progress_begin(const mics_engine *engine)
{
    progress p = {.moved_us = mics_clock_us(), .looked_us = mics_clock_us()};
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        p.at[stream] = engine->list == NULL ? -1 : next_of_stream(engine, (mics_stream)stream, 0);
    return p;
}

// Whether all that a step waits for has been reached.
static bool is_reached_by_others(const progress *p, const mics_step *step)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (step->wait[stream] >= p->at[stream])
            return false;
    }
    return true;
}

static mics_status advance(const mics_engine *engine, progress *p)
{
    const mics_device *device = engine->device;
    for (int stream = 0; engine->list != NULL && stream < MICS_STREAMS; stream++) {
        bool done = true;
        while (done && p->at[stream] < engine->list->count) {
            MICS_TRY(
                device->ops->poll(device->ctx, list_event(engine, p->at[stream], true), &done));
            if (!done)
                break;
            p->at[stream] = next_of_stream(engine, (mics_stream)stream, p->at[stream] + 1);
            p->moved_us = mics_clock_us();
        }
    }
    return MICS_OK;
}

// Says in the heartbeat where the device is, and finds the collective that it is in; COMPUTE: none.
static mics_stream note_progress(mics_engine *engine, const progress *p)
{
    mics_stream late = MICS_STREAM_COMPUTE;
    int32_t inside = 0;
    for (int stream = 0; engine->list != NULL && stream < MICS_STREAMS; stream++) {
        if (p->at[stream] >= engine->list->count ||
            !is_reached_by_others(p, &engine->list->steps[p->at[stream]]))
            continue;
        inside |= 1 << stream;
        late = late == MICS_STREAM_COMPUTE ? (mics_stream)stream : late;
    }
    status_device(engine, p->at, inside);
    return late;
}

// Everything that may end the wait for an event which is not reached.
static mics_status look_around(mics_engine *engine, progress *p)
{
    const mics_device *device = engine->device;
    const double now_us = mics_clock_us(), away_us = now_us - p->looked_us;
    p->looked_us = now_us;
    if (away_us > MICS_STOOD_STILL_US) // this process did, and nobody is late
        p->moved_us += away_us;
    MICS_TRY(device->ops->check(device->ctx));
    MICS_TRY(mics_comm_check(engine->spec.comm));
    MICS_TRY(advance(engine, p));
    const mics_stream late = note_progress(engine, p);
    const double waited_s = (p->looked_us - p->moved_us) / 1e6;
    if (waited_s < engine->spec.timeout_s)
        return stream_failure(engine);
    watch_explain_device(engine, late, late < MICS_STREAMS ? p->at[late] : -1, waited_s);
    return MICS_ERR_TIMEOUT;
}

static mics_status wait_event(mics_engine *engine, int32_t event, progress *p)
{
    const mics_device *device = engine->device;
    bool done = false;
    for (;;) {
        MICS_TRY(device->ops->poll(device->ctx, event, &done));
        if (done)
            return MICS_OK;
        if (mics_clock_us() - p->looked_us > look_us)
            MICS_TRY(look_around(engine, p));
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

mics_status device_wait_step(mics_engine *engine, int32_t index)
{
    const mics_step *step = &engine->list->steps[index];
    progress p = progress_begin(engine);
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (step->wait[stream] >= 0)
            MICS_TRY(wait_event(engine, list_event(engine, step->wait[stream], true), &p));
    }
    return MICS_OK;
}

mics_status device_drain(mics_engine *engine)
{
    progress p = progress_begin(engine);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        MICS_TRY(wait_event(engine, stream_event(engine, (mics_stream)stream), &p));
    return engine->device->ops->check(engine->device->ctx);
}

// ---- times ----

static double end_us(const mics_engine *engine, int32_t index)
{
    return engine->device->ops->event_us(engine->device->ctx, list_event(engine, index, true));
}

// Computation waited between the end of one of its steps and the later ends of what the next one
// needs, stream by stream. Behind the agreement nothing else is waited for, and on a device nothing
// may have been reached yet.
void device_read_exposed(mics_engine *engine)
{
    const mics_step_list *list = engine->list;
    double *exposed_us = engine->result.exposed_us;
    double now_us = engine->begin_us;
    for (int32_t i = 0; i < list->count && list->steps[i].kind != MICS_STEP_AGREE; i++) {
        const mics_step *step = &list->steps[i];
        if (!mics_step_is_compute(step))
            continue;
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t awaited = step->wait[stream];
            const double ended_us = awaited < 0 ? 0 : end_us(engine, awaited);
            if (ended_us <= now_us)
                continue;
            exposed_us[list->steps[awaited].kind] += ended_us - now_us;
            now_us = ended_us;
        }
        now_us = end_us(engine, i);
    }
    if (engine->agreed_us > now_us)
        exposed_us[MICS_STEP_AGREE] += engine->agreed_us - now_us;
}

void device_read_times(const mics_engine *engine)
{
    const mics_device *device = engine->device;
    const mics_step_list *list = &engine->schedule->lists[MICS_PHASE_TRAIN];
    if (device->ops->synchronize(device->ctx, MICS_STREAM_COMPUTE) != MICS_OK)
        return;
    for (int32_t i = 0; i < list->count; i++)
        engine->times[i] = (mics_step_time){device->ops->event_us(device->ctx, 2 * i),
                                            device->ops->event_us(device->ctx, 2 * i + 1)};
}
