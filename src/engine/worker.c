// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The communication threads, and how the streams wait for each other.
//
// Invariants (guarded by engine->mutex):
//   1. done[s] grows within a list; a step of stream s is done exactly when its index <= done[s]. On a
//      device that has memory of its own `done` means enqueued: what waits for it waits for its event
//      too. AGREE is done for good there.
//   2. After `failure` is set no wait blocks, so all streams end and the list is joined.
#include "engine/engine_internal.h"
#include "mics/clock.h"
#include "mics/log.h"
#include <string.h>

// ---- threads ----

static void *worker_main(void *arg)
{
    worker *w = arg;
    mics_engine *engine = w->engine;
    mics_log_set_rank(engine->spec.comm->ranks > 1 ? engine->rank : -1);
    mics_op_set_threads(1); // additions of received data; the cores belong to computation
    pthread_mutex_lock(&engine->mutex);
    for (;;) {
        while (!w->busy && !w->closing)
            pthread_cond_wait(&engine->changed, &engine->mutex);
        if (!w->busy)
            break;
        pthread_mutex_unlock(&engine->mutex);
        mics_status status = w->job(engine, w->stream);
        pthread_mutex_lock(&engine->mutex);
        w->job_status = status;
        w->busy = false;
        pthread_cond_broadcast(&engine->changed);
    }
    pthread_mutex_unlock(&engine->mutex);
    return NULL;
}

static bool has_steps(const mics_engine *engine, mics_stream stream)
{
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &engine->schedule->lists[phase];
        for (int32_t i = 0; i < list->count; i++) {
            if (list->steps[i].stream == stream)
                return true;
        }
    }
    return false;
}

static mics_status open_locks(mics_engine *engine)
{
    if (pthread_mutex_init(&engine->mutex, NULL) != 0)
        return mics_fail(MICS_ERR_MEMORY, "no mutex for the communication threads");
    if (pthread_cond_init(&engine->changed, NULL) != 0) {
        pthread_mutex_destroy(&engine->mutex);
        return mics_fail(MICS_ERR_MEMORY, "no condition for the communication threads");
    }
    engine->locks_open = true;
    return MICS_OK;
}

mics_status worker_open(mics_engine *engine)
{
    MICS_TRY(open_locks(engine));
    engine->home =
        mics_mesh_spans_nodes(&engine->schedule->spec.mesh, MICS_AXIS_WORLD, MICS_SCOPE_WHOLE)
            ? MICS_STREAM_FAR
            : MICS_STREAM_NEAR;
    for (int stream = MICS_STREAM_COMPUTE + 1; stream < MICS_STREAMS; stream++) {
        worker *w = &engine->workers[stream];
        w->engine = engine;
        w->stream = (mics_stream)stream;
        if (!has_steps(engine, w->stream))
            continue;
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            return mics_fail(MICS_ERR_MEMORY,
                             "the system starts no more threads (communication thread)");
        w->started = true;
    }
    return MICS_OK;
}

void worker_close(mics_engine *engine)
{
    if (!engine->locks_open)
        return;
    pthread_mutex_lock(&engine->mutex);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        engine->workers[stream].closing = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (engine->workers[stream].started)
            pthread_join(engine->workers[stream].thread, NULL);
    }
    pthread_cond_destroy(&engine->changed);
    pthread_mutex_destroy(&engine->mutex);
    engine->locks_open = false;
}

void worker_start(mics_engine *engine, mics_stream stream, worker_job job)
{
    worker *w = &engine->workers[stream];
    if (!w->started)
        return;
    pthread_mutex_lock(&engine->mutex);
    w->job = job;
    w->busy = true;
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
}

mics_status worker_join(mics_engine *engine, mics_stream stream)
{
    worker *w = &engine->workers[stream];
    if (!w->started)
        return MICS_OK;
    pthread_mutex_lock(&engine->mutex);
    while (w->busy)
        pthread_cond_wait(&engine->changed, &engine->mutex);
    mics_status status = w->job_status;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

// ---- streams ----

// Puts the note on the board. Called with the mutex.
static void post_note(mics_engine *engine)
{
    mics_note bytes = {{0}};
    _Static_assert(sizeof engine->note <= sizeof bytes.bytes, "a note holds what the engine says");
    memcpy(bytes.bytes, &engine->note, sizeof engine->note);
    mics_comm_post(engine->spec.comm, &bytes);
}

void note_call(mics_engine *engine, engine_call call)
{
    pthread_mutex_lock(&engine->mutex);
    engine_note *own = &engine->note;
    own->run += call != ENGINE_IDLE;
    own->call = (int32_t)call;
    own->step = engine->step;
    own->phase = (int32_t)engine->phase;
    own->inside = 0;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        own->at[stream] = -1;
    post_note(engine);
    pthread_mutex_unlock(&engine->mutex);
}

// Notes where a stream is. Called with the mutex.
static void note_step(mics_engine *engine, mics_stream stream, int32_t index, bool inside)
{
    const int32_t bit = 1 << stream;
    engine_note *own = &engine->note;
    own->at[stream] = index;
    own->inside = inside ? own->inside | bit : own->inside & ~bit;
    post_note(engine);
}

void note_device(mics_engine *engine, const int32_t at[MICS_STREAMS], int32_t inside)
{
    pthread_mutex_lock(&engine->mutex);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        engine->note.at[stream] = at[stream];
    engine->note.inside = inside;
    post_note(engine);
    pthread_mutex_unlock(&engine->mutex);
}

mics_status stream_failure(mics_engine *engine)
{
    pthread_mutex_lock(&engine->mutex);
    mics_status status = engine->failure;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

// Waits until a step of another stream is done (at once for index < 0). Called with the mutex.
static mics_status wait_for(mics_engine *engine, mics_stream stream, int32_t index)
{
    while (engine->done[stream] < index && engine->failure == MICS_OK)
        pthread_cond_wait(&engine->changed, &engine->mutex);
    return engine->done[stream] >= index ? MICS_OK : engine->failure;
}

// Waits for all that a step names. What computation waits for counts as exposed, by the kind of the
// collective that it waits for.
static mics_status wait_for_others(mics_engine *engine, const mics_step *step)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        const int32_t index = step->wait[stream];
        if (index < 0 || engine->done[stream] >= index)
            continue;
        const double begin_us = mics_clock_us();
        MICS_TRY(wait_for(engine, (mics_stream)stream, index));
        if (step->stream == MICS_STREAM_COMPUTE && !engine->async)
            engine->result.exposed_us[engine->list->steps[index].kind] +=
                mics_clock_us() - begin_us;
    }
    return MICS_OK;
}

// Waits for what step `index` needs, and says on the board where this stream is.
static mics_status begin(mics_engine *engine, mics_stream stream, int32_t index)
{
    pthread_mutex_lock(&engine->mutex);
    note_step(engine, stream, index, false);
    mics_status status = wait_for_others(engine, &engine->list->steps[index]);
    if (status == MICS_OK)
        note_step(engine, stream, index, true);
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

static void end(mics_engine *engine, mics_stream stream, int32_t index, mics_status status)
{
    pthread_mutex_lock(&engine->mutex);
    if (status == MICS_OK)
        engine->done[stream] = index;
    else if (engine->failure == MICS_OK)
        engine->failure = status;
    engine->note.inside &= ~(1 << stream); // the board hears of it with the next step
    pthread_cond_broadcast(&engine->changed);
    pthread_mutex_unlock(&engine->mutex);
}

mics_status stream_run(mics_engine *engine, mics_stream stream,
                       mics_status (*run)(mics_engine *engine, const mics_step *step))
{
    const mics_step_list *list = engine->list;
    mics_status status = MICS_OK;
    if (engine->async)
        device_begin_stream(engine, stream);
    for (int32_t i = 0; i < list->count && status == MICS_OK; i++) {
        const mics_step *step = &list->steps[i];
        if (step->stream != stream)
            continue;
        status = begin(engine, stream, i);
        const double begin_us = mics_clock_us();
        if (engine->async && status == MICS_OK)
            device_begin_step(engine, i);
        if (status == MICS_OK)
            status = run(engine, step);
        if (engine->async)
            device_end_step(engine, i);
        else if (engine->phase == MICS_PHASE_TRAIN)
            engine->times[i] = (mics_step_time){begin_us, mics_clock_us()};
        end(engine, stream, i, status);
    }
    if (engine->async)
        device_end_stream(engine, stream);
    return status;
}
