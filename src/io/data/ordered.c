// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A queue of jobs for threads. Job n lies in slot n modulo slots; the caller's thread alone changes
// `given` and `taken`.
//
// Invariant, checked by is_ordered: taken <= begun <= given <= taken + slots; without threads
// nothing is begun.
#include "io/data/ordered.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/free.h"
#include "mics/log.h"
#include <pthread.h>

typedef struct ordered_thread {
    mics_ordered *queue;
    int32_t number;
    pthread_t id;
} ordered_thread;

struct mics_ordered {
    mics_memory *memory;
    mics_ordered_jobs jobs;
    int32_t slots;
    int32_t count; // threads that run; 0: the caller does the jobs
    ordered_thread *threads;
    int64_t given, taken;
    pthread_mutex_t mutex; // guards what follows, and `given`
    pthread_cond_t more, done;
    int64_t begun;
    bool *is_done; // (slots)
    bool closing;
};

// Called with the mutex, by the caller's thread.
static bool is_ordered(const mics_ordered *queue)
{
    const bool begun = queue->taken <= queue->begun && queue->begun <= queue->given;
    return queue->taken <= queue->given && queue->given <= queue->taken + queue->slots &&
           (queue->count == 0 ? queue->begun == 0 : begun);
}

int32_t mics_ordered_slots(int32_t threads)
{
    return threads == 1 ? 1 : 2 * threads + 1;
}

static void *run(void *argument)
{
    ordered_thread *self = argument;
    mics_ordered *queue = self->queue;
    mics_log_hold(false);
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (queue->begun == queue->given && !queue->closing)
            pthread_cond_wait(&queue->more, &queue->mutex);
        if (queue->closing)
            break;
        const int32_t slot = (int32_t)(queue->begun++ % queue->slots);
        pthread_mutex_unlock(&queue->mutex);
        queue->jobs.work(queue->jobs.ctx, self->number, slot);
        pthread_mutex_lock(&queue->mutex);
        queue->is_done[slot] = true;
        pthread_cond_signal(&queue->done);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static void start_threads(mics_ordered *queue, int32_t threads)
{
    for (int32_t i = 0; i < threads; i++) {
        ordered_thread *thread = &queue->threads[i];
        *thread = (ordered_thread){.queue = queue, .number = i};
        if (pthread_create(&thread->id, NULL, run, thread) != 0)
            return;
        queue->count++;
    }
}

mics_status mics_ordered_open(mics_memory *memory, int32_t threads, mics_ordered_jobs jobs,
                              mics_ordered **queue_out)
{
    mics_ordered *queue = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &queue));
    queue->memory = memory;
    queue->jobs = jobs;
    queue->slots = mics_ordered_slots(threads);
    mics_status status =
        mics_locks_init(&queue->mutex, (pthread_cond_t *[]){&queue->more, &queue->done}, 2);
    if (status != MICS_OK) {
        mics_free(memory, queue);
        return status;
    }
    status = MICS_NEW(memory, queue->slots, &queue->is_done);
    if (status == MICS_OK)
        status = MICS_NEW(memory, threads, &queue->threads);
    if (status != MICS_OK) {
        mics_ordered_close(queue);
        return status;
    }
    if (threads > 1)
        start_threads(queue, threads);
    *queue_out = queue;
    return MICS_OK;
}

void mics_ordered_close(mics_ordered *queue)
{
    if (queue == NULL)
        return;
    pthread_mutex_lock(&queue->mutex);
    queue->closing = true;
    pthread_cond_broadcast(&queue->more);
    pthread_mutex_unlock(&queue->mutex);
    for (int32_t i = 0; i < queue->count; i++)
        pthread_join(queue->threads[i].id, NULL);
    pthread_cond_destroy(&queue->done);
    pthread_cond_destroy(&queue->more);
    pthread_mutex_destroy(&queue->mutex);
    MICS_FREE_ALL(queue->memory, queue->threads, queue->is_done, queue);
}

bool mics_ordered_is_full(const mics_ordered *queue)
{
    return queue->given - queue->taken == queue->slots;
}

bool mics_ordered_is_empty(const mics_ordered *queue)
{
    return queue->given == queue->taken;
}

int32_t mics_ordered_next(const mics_ordered *queue)
{
    return (int32_t)(queue->given % queue->slots);
}

void mics_ordered_give(mics_ordered *queue)
{
    const int32_t slot = mics_ordered_next(queue);
    if (queue->count == 0)
        queue->jobs.work(queue->jobs.ctx, 0, slot);
    pthread_mutex_lock(&queue->mutex);
    queue->is_done[slot] = queue->count == 0;
    queue->given++;
    MICS_ASSERT(is_ordered(queue));
    pthread_cond_signal(&queue->more);
    pthread_mutex_unlock(&queue->mutex);
}

int32_t mics_ordered_take(mics_ordered *queue)
{
    const int32_t slot = (int32_t)(queue->taken % queue->slots);
    pthread_mutex_lock(&queue->mutex);
    while (!queue->is_done[slot])
        pthread_cond_wait(&queue->done, &queue->mutex);
    queue->taken++;
    MICS_ASSERT(is_ordered(queue));
    pthread_mutex_unlock(&queue->mutex);
    return slot;
}
