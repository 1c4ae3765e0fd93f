// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank says of itself: where each of its streams is, for the others to read, and what its
// steps are called.
#include "engine/status.h"
#include "engine/state.h"
#include "mics/core/heartbeat.h"
#include <stdio.h>
#include <string.h>

void name_step(const mics_engine *engine, const mics_step *step, char *text, size_t capacity)
{
    char micro_step[32] = "", more[24] = "";
    if (step->member_count > 1)
        snprintf(more, sizeof more, " and %d more", (int)step->member_count - 1);
    if (step->micro_step >= 0)
        snprintf(micro_step, sizeof micro_step, ", micro-step %d", (int)step->micro_step + 1);
    snprintf(text, capacity, "%s of %s%s over the %s (%s %lld%s, no. %lld.%d)",
             mics_step_text(step->kind, step->stage),
             step->unit >= 0 ? engine->schedule->spec.model->units[step->unit].name
                             : "loss and norm",
             more, mics_group_text(step->axis, mics_step_scope(step)),
             engine->phase == MICS_PHASE_TRAIN ? "step" : "evaluation after step",
             (long long)engine->step, micro_step, (long long)engine->status.run,
             (int)(step - engine->list->steps));
}

// Sends the status with the heartbeat. Called with the mutex.
static void post_status(mics_engine *engine)
{
    mics_heartbeat bytes = {{0}};
    _Static_assert(sizeof engine->status <= sizeof bytes.bytes, "a heartbeat holds the status");
    memcpy(bytes.bytes, &engine->status, sizeof engine->status);
    mics_comm_heartbeat_post(engine->spec.comm, &bytes);
}

void status_call(mics_engine *engine, engine_call call)
{
    pthread_mutex_lock(&engine->mutex);
    engine_status *own = &engine->status;
    own->run += call != ENGINE_IDLE;
    own->call = (int32_t)call;
    own->step = engine->step;
    own->phase = (int32_t)engine->phase;
    own->inside = 0;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        own->at[stream] = -1;
    post_status(engine);
    pthread_mutex_unlock(&engine->mutex);
}

// Notes where a stream is. Called with the mutex.
void status_step(mics_engine *engine, mics_stream stream, int32_t index, bool inside)
{
    const int32_t bit = 1 << stream;
    engine_status *own = &engine->status;
    own->at[stream] = index;
    own->inside = inside ? own->inside | bit : own->inside & ~bit;
    post_status(engine);
}

void status_device(mics_engine *engine, const int32_t at[MICS_STREAMS], int32_t inside)
{
    pthread_mutex_lock(&engine->mutex);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        engine->status.at[stream] = at[stream];
    engine->status.inside = inside;
    post_status(engine);
    pthread_mutex_unlock(&engine->mutex);
}

mics_status stream_failure(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    mics_status status = engine->failure;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

bool stream_served(const mics_engine *engine, mics_stream thread, mics_stream stream)
{
    const bool launches_all = !engine->device->is_host;
    return thread == stream ||
           (launches_all && thread == engine->home && stream != MICS_STREAM_COMPUTE);
}
