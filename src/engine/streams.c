// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The communication threads, and the walk over a list that all streams take, on whatever device.
//
// Collectives and copies of the host block, so each of its streams has a thread. Those of a device
// are enqueued: one thread does so for all these streams in list order, which is the same on all
// ranks, so that no two ranks launch the kernels of two communicators in different orders. NCCL
// asks for that.
//
// done[s]: index of stream s's newest complete step (guarded by engine->mutex). On a device with
// memory of its own: enqueued, and waits include its event; AGREE alone is complete. After a
// failure no wait blocks, so all streams end and the list is joined.
//
// Invariant, checked by follows: a stream's steps end in list order, each behind what it waits for.
// So threads never wait for each other in a circle.
#include "engine/streams.h"
#include "base/assert.h"
#include "engine/events.h"
#include "engine/status.h"
#include "mics/log.h"

// ---- threads ----

static void *worker_main(void *arg)
{
    worker *w = arg;
    mics_engine *engine = w->engine;
    mics_log_set_rank(mics_mesh_world(&engine->schedule->spec.mesh) > 1 ? engine->rank : -1);
    mics_op_set_threads(1); // additions of received data; the cores belong to computation
    pthread_mutex_lock(&engine->mutex);
    for (;;) {
        while (!w->busy && !w->closing)
            pthread_cond_wait(&w->woken, &engine->mutex);
        if (!w->busy)
            break;
        pthread_mutex_unlock(&engine->mutex);
        mics_status status = w->job(engine, w->stream);
        pthread_mutex_lock(&engine->mutex);
        w->job_status = status;
        w->busy = false;
        pthread_cond_signal(&engine->workers[MICS_STREAM_COMPUTE].woken); // who joins
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
    int ready = 0;
    while (ready < MICS_STREAMS && pthread_cond_init(&engine->workers[ready].woken, NULL) == 0)
        ready++;
    engine->locks_open = ready == MICS_STREAMS;
    if (engine->locks_open)
        return MICS_OK;
    while (ready > 0)
        pthread_cond_destroy(&engine->workers[--ready].woken);
    pthread_mutex_destroy(&engine->mutex);
    return mics_fail(MICS_ERR_MEMORY, "no condition for the communication threads");
}

mics_status worker_open(mics_engine *engine)
{
    MICS_TRY(open_locks(engine));
    engine->home =
        mics_mesh_spans_nodes(&engine->schedule->spec.mesh, MICS_AXIS_ISLAND, MICS_SCOPE_WHOLE)
            ? MICS_STREAM_INTER
            : MICS_STREAM_INTRA;
    for (int stream = MICS_STREAM_COMPUTE + 1; stream < MICS_STREAMS; stream++) {
        worker *w = &engine->workers[stream];
        w->engine = engine;
        w->stream = (mics_stream)stream;
        if (!has_steps(engine, w->stream) ||
            (!engine->device->is_host && w->stream != engine->home))
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
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        engine->workers[stream].closing = true;
        pthread_cond_signal(&engine->workers[stream].woken);
    }
    pthread_mutex_unlock(&engine->mutex);
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (engine->workers[stream].started)
            pthread_join(engine->workers[stream].thread, NULL);
        pthread_cond_destroy(&engine->workers[stream].woken);
    }
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
    pthread_mutex_unlock(&engine->mutex);
    pthread_cond_signal(&w->woken);
}

mics_status worker_join(mics_engine *engine, mics_stream stream)
{
    worker *w = &engine->workers[stream];
    if (!w->started)
        return MICS_OK;
    pthread_mutex_lock(&engine->mutex);
    while (w->busy)
        pthread_cond_wait(&engine->workers[MICS_STREAM_COMPUTE].woken, &engine->mutex);
    mics_status status = w->job_status;
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

// ---- streams ----

// Whether all that a step waits for is done, or never will be. Called with the mutex.
static bool is_ready(const mics_engine *engine, const mics_step *step)
{
    bool ready = true;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        ready = ready && engine->done[stream] >= step->wait[stream];
    return ready || engine->failure != MICS_OK;
}

// Waits for what step `index` needs, and says in the heartbeat where its stream is.
static mics_status begin(mics_engine *engine, mics_stream thread, int32_t index)
{
    const mics_step *step = &engine->list->steps[index];
    worker *w = &engine->workers[thread];
    mics_status status = MICS_OK;
    pthread_mutex_lock(&engine->mutex);
    status_step(engine, step->stream, index, false);
    while (!is_ready(engine, step)) {
        w->awaits = step;
        pthread_cond_wait(&w->woken, &engine->mutex);
    }
    w->awaits = NULL;
    for (int stream = 0; stream < MICS_STREAMS && status == MICS_OK; stream++)
        status = engine->done[stream] >= step->wait[stream] ? MICS_OK : engine->failure;
    if (status == MICS_OK)
        status_step(engine, step->stream, index, true);
    pthread_mutex_unlock(&engine->mutex);
    return status;
}

// Called with the mutex.
static bool follows(const mics_engine *engine, int32_t index)
{
    const mics_step *step = &engine->list->steps[index];
    return engine->done[step->stream] < index && is_ready(engine, step);
}

// Notes the end of a step. Wakes those threads alone that can go on: a thread that wakes for nothing
// costs two switches. Called with the mutex, which it gives back.
static void note_end(mics_engine *engine, int32_t index, mics_status status)
{
    const mics_stream stream = engine->list->steps[index].stream;
    bool wakes[MICS_STREAMS];
    if (status == MICS_OK)
        engine->done[stream] = index;
    else if (engine->failure == MICS_OK)
        engine->failure = status;
    for (int other = 0; other < MICS_STREAMS; other++) {
        const mics_step *awaited = engine->workers[other].awaits;
        wakes[other] = awaited != NULL && is_ready(engine, awaited);
    }
    pthread_mutex_unlock(&engine->mutex);
    for (int other = 0; other < MICS_STREAMS; other++) {
        if (wakes[other])
            pthread_cond_signal(&engine->workers[other].woken);
    }
}

static void end(mics_engine *engine, int32_t index, mics_status status)
{
    pthread_mutex_lock(&engine->mutex);
    MICS_ASSERT(follows(engine, index));
    engine->status.inside &= ~(1 << engine->list->steps[index].stream); // told with the next step
    note_end(engine, index, status);
}

// A step of a list with meetings that does not run is done once its stream comes to it, whatever it
// would have waited for.
static void pass(mics_engine *engine, int32_t index)
{
    if (engine->islands == NULL || engine->phase != MICS_PHASE_TRAIN)
        return;
    if (mics_step_meets(&engine->list->steps[index]))
        device_pass_step(engine, index);
    pthread_mutex_lock(&engine->mutex);
    note_end(engine, index, MICS_OK);
}

mics_status stream_run(mics_engine *engine, mics_stream thread, step_job *run)
{
    mics_status status = MICS_OK;
    device_begin_streams(engine, thread);
    for (int32_t i = 0; i < engine->list->count && status == MICS_OK; i++) {
        if (!stream_served(engine, thread, engine->list->steps[i].stream))
            continue;
        if (!step_runs(engine, &engine->list->steps[i])) {
            pass(engine, i);
            continue;
        }
        status = begin(engine, thread, i);
        if (status == MICS_OK) {
            device_begin_step(engine, i);
            status = run(engine, &engine->list->steps[i]);
            device_end_step(engine, i);
        }
        end(engine, i, status);
    }
    device_end_streams(engine, thread);
    return status;
}
