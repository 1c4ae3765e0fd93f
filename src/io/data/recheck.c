// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One check runs at a time, of the shard in `index`, by a thread that ends with it. All is guarded by
// `mutex`, but for what the thread is given.
#include "io/data/recheck.h"
#include "base/clock.h"
#include "base/free.h"
#include "mics/log.h"
#include <pthread.h>
#include <stdatomic.h>

// Of the 300 s that ranks wait for one another by default.
static const double PATIENCE_US = 60e6, POLL_US = 50e3;

struct mics_recheck {
    mics_memory *memory;
    mics_shard_stamp *good; // by shard: the newest other stamp under which it had its tokens
    int64_t index;
    const mics_shard *shard;
    mics_shard_stamp now;
    uint64_t hash;
    mics_status status; // of the newest check
    bool runs, started; // the thread: works; is to be joined
    atomic_bool ends;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t done;
};

mics_status mics_recheck_open(mics_memory *memory, int64_t shards, mics_recheck **checks_out)
{
    mics_recheck *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->memory = memory;
    mics_status status = MICS_NEW(memory, shards, &self->good);
    if (status == MICS_OK)
        status = mics_locks_init(&self->mutex, (pthread_cond_t *[]){&self->done}, 1);
    if (status != MICS_OK) {
        MICS_FREE_ALL(memory, self->good, self);
        return status;
    }
    *checks_out = self;
    return MICS_OK;
}

// Of a check that has ended, or is about to.
static void join(mics_recheck *self)
{
    if (self->started)
        pthread_join(self->thread, NULL);
    self->started = false;
}

void mics_recheck_close(mics_recheck *self)
{
    if (self == NULL)
        return;
    atomic_store(&self->ends, true);
    join(self);
    pthread_cond_destroy(&self->done);
    pthread_mutex_destroy(&self->mutex);
    MICS_FREE_ALL(self->memory, self->good, self);
}

// Whoever waits says what is wrong.
static mics_status check(mics_recheck *self)
{
    mics_shard_stamp then = {0};
    uint64_t hash = 0;
    const bool muted = mics_log_mute(true);
    mics_status status = mics_shard_hash(self->shard, &self->ends, &hash, &then);
    mics_log_mute(muted);
    if (status == MICS_OK && hash != self->hash)
        status = MICS_ERR_FORMAT;
    self->now = then; // written again meanwhile: the read that comes next sees it
    return status;
}

static void *run(void *argument)
{
    mics_recheck *self = argument;
    const mics_status status = check(self);
    if (status == MICS_OK)
        mics_log(MICS_LOG_INFO, "%s: has the tokens that it had", self->shard->path);
    pthread_mutex_lock(&self->mutex);
    self->status = status;
    if (status == MICS_OK)
        self->good[self->index] = self->now;
    self->runs = false;
    pthread_cond_broadcast(&self->done);
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

// Called with the mutex.
static mics_status start(mics_recheck *self, int64_t index, const mics_shard *shard, uint64_t hash)
{
    join(self);
    self->index = index;
    self->shard = shard;
    self->hash = hash;
    self->runs = self->started = pthread_create(&self->thread, NULL, run, self) == 0;
    if (!self->started)
        return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (data)");
    mics_log(MICS_LOG_INFO,
             "%s: was touched or written while it is read; its tokens are compared with those that "
             "it had",
             shard->path);
    return MICS_OK;
}

// Called with the mutex.
static mics_status settle(const mics_recheck *self, const mics_shard *shard)
{
    if (self->status == MICS_ERR_FORMAT)
        return mics_fail(MICS_ERR_IO,
                         "%s: was changed after it was opened: it has other tokens, written later; "
                         "restore it, and start again",
                         shard->path);
    if (self->status != MICS_OK)
        return mics_fail(MICS_ERR_IO,
                         "%s: was changed after it was opened, and cannot be read again; restore "
                         "it, and start again",
                         shard->path);
    return MICS_OK;
}

static mics_status await(mics_recheck *self, int64_t index, const mics_shard *shard,
                         const mics_shard_stamp *now, uint64_t hash, bool *known_out)
{
    const double begin_us = mics_clock_us();
    while (!mics_shard_same_stamp(&self->good[index], now)) {
        if (!self->runs && self->index == index && self->status != MICS_OK)
            return settle(self, shard);
        if (!self->runs) {
            MICS_TRY(start(self, index, shard, hash));
        } else if (mics_clock_us() - begin_us > PATIENCE_US) {
            mics_log(MICS_LOG_WARNING,
                     "%s: is still compared; training goes on with what it holds now, and ends if "
                     "that is not what it held",
                     self->shard->path);
            return MICS_OK;
        }
        mics_condition_wait(&self->done, &self->mutex, POLL_US);
        if (!self->runs && self->index == index) {
            MICS_TRY(settle(self, shard));
            *known_out = true; // or it was written once more, and is read again
            return MICS_OK;
        }
    }
    *known_out = true;
    return MICS_OK;
}

mics_status mics_recheck_shard(mics_recheck *self, int64_t index, const mics_shard *shard,
                               const mics_shard_stamp *now, uint64_t hash, bool *known_out)
{
    *known_out = false;
    pthread_mutex_lock(&self->mutex);
    const mics_status status = await(self, index, shard, now, hash, known_out);
    pthread_mutex_unlock(&self->mutex);
    return status;
}
