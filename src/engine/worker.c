// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The communication thread, and how the two streams wait for each other.
//
// Invariants (guarded by worker.mutex):
//   1. done[s] grows within a list; a step of stream s is done exactly when its index <= done[s].
//   2. After `failure` is set no wait blocks, so both streams end and the list is joined.
#include "engine/engine_internal.h"
#include "mics/clock.h"
#include "mics/log.h"

static void *worker_main(void *arg)
{
    mics_engine *engine = arg;
    worker *w = &engine->worker;
    mics_log_set_rank(engine->spec.comm->ranks > 1 ? engine->rank : -1);
    mics_op_set_threads(1); // additions of received data; the cores belong to computation
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->busy && !w->closing)
            pthread_cond_wait(&w->changed, &w->mutex);
        if (!w->busy)
            break;
        pthread_mutex_unlock(&w->mutex);
        mics_status status = w->job(engine);
        pthread_mutex_lock(&w->mutex);
        w->job_status = status;
        w->busy = false;
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

mics_status worker_open(mics_engine *engine)
{
    worker *w = &engine->worker;
    if (pthread_mutex_init(&w->mutex, NULL) != 0)
        return mics_fail(MICS_ERR_MEMORY, "no mutex for the communication thread");
    if (pthread_cond_init(&w->changed, NULL) != 0) {
        pthread_mutex_destroy(&w->mutex);
        return mics_fail(MICS_ERR_MEMORY, "no condition for the communication thread");
    }
    if (pthread_create(&w->thread, NULL, worker_main, engine) != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
        return mics_fail(MICS_ERR_MEMORY,
                         "the system starts no more threads (communication thread)");
    }
    w->started = true;
    return MICS_OK;
}

void worker_close(mics_engine *engine)
{
    worker *w = &engine->worker;
    if (!w->started)
        return;
    pthread_mutex_lock(&w->mutex);
    w->closing = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    w->started = false;
}

void worker_start(mics_engine *engine, mics_status (*job)(mics_engine *engine))
{
    worker *w = &engine->worker;
    pthread_mutex_lock(&w->mutex);
    w->job = job;
    w->busy = true;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

mics_status worker_join(mics_engine *engine)
{
    worker *w = &engine->worker;
    pthread_mutex_lock(&w->mutex);
    while (w->busy)
        pthread_cond_wait(&w->changed, &w->mutex);
    mics_status status = w->job_status;
    pthread_mutex_unlock(&w->mutex);
    return status;
}

mics_status stream_wait(mics_engine *engine, mics_stream stream, int32_t step)
{
    worker *w = &engine->worker;
    pthread_mutex_lock(&w->mutex);
    while (engine->done[stream] < step && engine->failure == MICS_OK)
        pthread_cond_wait(&w->changed, &w->mutex);
    mics_status status = engine->done[stream] >= step ? MICS_OK : engine->failure;
    pthread_mutex_unlock(&w->mutex);
    return status;
}

void stream_done(mics_engine *engine, mics_stream stream, int32_t step)
{
    worker *w = &engine->worker;
    pthread_mutex_lock(&w->mutex);
    engine->done[stream] = step;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

void stream_fail(mics_engine *engine, mics_status status)
{
    worker *w = &engine->worker;
    pthread_mutex_lock(&w->mutex);
    if (engine->failure == MICS_OK)
        engine->failure = status;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

// Waits for what a step names on the other stream; its own stream is in order.
static mics_status wait_for_others(mics_engine *engine, const mics_step *step)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (stream == (int)step->stream || step->wait[stream] < 0)
            continue;
        double begin_us = mics_clock_us();
        MICS_TRY(stream_wait(engine, (mics_stream)stream, step->wait[stream]));
        if (step->stream == MICS_STREAM_COMPUTE)
            engine->exposed_us += mics_clock_us() - begin_us;
    }
    return MICS_OK;
}

mics_status stream_run(mics_engine *engine, mics_stream stream,
                       mics_status (*run)(mics_engine *engine, const mics_step *step))
{
    const mics_step_list *list = engine->list;
    mics_status status = MICS_OK;
    for (int32_t i = 0; i < list->count && status == MICS_OK; i++) {
        const mics_step *step = &list->steps[i];
        if (step->stream != stream)
            continue;
        status = wait_for_others(engine, step);
        if (status != MICS_OK)
            break;
        double begin_us = mics_clock_us();
        status = run(engine, step);
        if (engine->phase == MICS_PHASE_TRAIN)
            engine->times[i] = (mics_step_time){begin_us, mics_clock_us()};
        if (status == MICS_OK)
            stream_done(engine, stream, i);
    }
    if (status != MICS_OK)
        stream_fail(engine, status);
    return status;
}
