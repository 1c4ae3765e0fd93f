// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The thread that writes a rank's share of checkpoints.
#include "saver.h"
#include "base/clock.h"
#include "mics/log.h"
#include "run/node_memory/alone.h"
#include "run/ranks/stop.h"
#include "run/share.h"
#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum {
    MAX_FILES_POLL = 50 // how often rank 0 looks for the files of others, ms at most
};

// How often a thread without work looks whether the run is to stop.
static const double POLL_US = 50e3;

// ---- one save ----

static int64_t bytes_of(const run_save *save, int32_t units)
{
    int64_t bytes = 0;
    for (int32_t u = 0; u < units; u++)
        bytes += (save->shards[u].end - save->shards[u].begin) * save->shards[u].state_count *
                 (int64_t)sizeof(float);
    return bytes;
}

static void set_state(run_saver *self, run_save *save, run_save_state state)
{
    pthread_mutex_lock(&self->mutex);
    save->state = state;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->mutex);
}

// On the thread that writes; whoever waits for it tells it on.
static void note_written(void *ctx, const char *what, int64_t done, int64_t total)
{
    run_saver *self = ctx;
    (void)what;
    atomic_store(&self->to_write, total);
    atomic_store(&self->written, done);
}

// A failing write is told by who calls for the save; see `warns`.
static mics_status write_share(run_saver *self, run_save *save)
{
    const run_context *context = self->context;
    const mics_job *job = context->job;
    const int32_t units = job->model->unit_count;
    const mics_checkpoint_writer writer = {.dir = job->checkpoints_dir,
                                           .rank = context->rank->comm->rank,
                                           .writers = context->rank->comm->ranks,
                                           .listener = {.ctx = self, .progress = note_written}};
    const double begin_us = mics_clock_us();
    atomic_store(&self->written, 0);
    MICS_TRY(run_share_check_finite(save->shards, units, save->step));
    const bool before = mics_log_demote(save->warns);
    mics_status status =
        mics_checkpoint_save_open(context->rank->memory, &writer, &save->meta, &save->saving);
    if (status == MICS_OK)
        status = mics_checkpoint_save_write(save->saving, save->shards, units);
    mics_log_demote(before);
    const double taken_s = (mics_clock_us() - begin_us) / 1e6;
    if (status == MICS_OK && taken_s > 0)
        atomic_store(&self->rate, (double)bytes_of(save, units) / taken_s);
    return status;
}

static bool gives_up(run_saver *self, const run_save *save)
{
    pthread_mutex_lock(&self->mutex);
    const bool so = save->gives_up || self->closing;
    pthread_mutex_unlock(&self->mutex);
    return so;
}

static bool all_have_written(run_saver *self, const run_save *save)
{
    pthread_mutex_lock(&self->mutex);
    const bool so = save->written;
    pthread_mutex_unlock(&self->mutex);
    return so;
}

// Files that are there count, also when it is late. What all ranks have written can be late only as
// far as a network's file system makes it so; of what does not come then the commit says the name.
static mics_status await_files(run_saver *self, const run_save *save)
{
    const mics_job *job = self->context->job;
    double begin_us = mics_clock_us(), limit_us = run_job_files_timeout_s(job) * 1e6;
    bool written = false;
    for (int wait_ms = 1; !mics_checkpoint_save_is_written(save->saving);) {
        if (gives_up(self, save))
            return MICS_ERR_PEER;
        if (!written && all_have_written(self, save)) {
            written = true;
            begin_us = mics_clock_us();
            limit_us = job->run->comm_timeout_s * 1e6;
        }
        const bool late = mics_clock_us() - begin_us > limit_us;
        if (late && written)
            return MICS_OK;
        if (late)
            return mics_fail(MICS_ERR_TIMEOUT,
                             "step %lld is not saved: other ranks have not written their parts",
                             (long long)save->step);
        nanosleep(&(struct timespec){.tv_nsec = wait_ms * 1000000L}, NULL);
        wait_ms = wait_ms * 2 < MAX_FILES_POLL ? wait_ms * 2 : MAX_FILES_POLL;
    }
    return MICS_OK;
}

static mics_status commit(run_saver *self, run_save *save)
{
    mics_job *job = self->context->job;
    set_state(self, save, RUN_SAVE_WAITING);
    MICS_TRY(await_files(self, save));
    set_state(self, save, RUN_SAVE_WRITING);
    run_stop_writes(&job->stop, true);
    const bool before = mics_log_demote(save->warns);
    const mics_status status = mics_checkpoint_save_commit(save->saving);
    mics_log_demote(before);
    if (status == MICS_OK)
        run_standing_save(&job->standing, save->step);
    run_stop_writes(&job->stop, false);
    return status;
}

// ---- node memory first ----

static bool hurries(run_saver *self, const run_save *save)
{
    pthread_mutex_lock(&self->mutex);
    const bool so = save->hurries || save->gives_up || self->closing;
    pthread_mutex_unlock(&self->mutex);
    return so;
}

// A rank that was not asked to stop hears of it when the step ends, and takes part then.
static run_alone_state await_all_kept(run_saver *self, const run_save *save, run_alone *alone)
{
    static const double LIMIT_US = 10e6;
    const double begin_us = mics_clock_us();
    run_alone_state state = RUN_ALONE_WAITS;
    for (int wait_ms = 1; (state = run_alone_look(alone)) == RUN_ALONE_WAITS;) {
        if (hurries(self, save) || mics_clock_us() - begin_us > LIMIT_US)
            break;
        nanosleep(&(struct timespec){.tv_nsec = wait_ms * 1000000L}, NULL);
        wait_ms = wait_ms * 2 < MAX_FILES_POLL ? wait_ms * 2 : MAX_FILES_POLL;
    }
    return state;
}

static void keep_if_late(run_saver *self, run_save *save)
{
    const run_context *context = self->context;
    run_alone alone = {0};
    run_alone_state state = RUN_ALONE_WAITS;
    set_state(self, save, RUN_SAVE_KEEPING);
    if (!run_share_is_late(self, run_saver_writes_older(self)))
        return;
    if (run_alone_begin(&alone, self->copies, save->step) == MICS_OK)
        state = await_all_kept(self, save, &alone);
    run_alone_end(&alone);
    save->kept = state == RUN_ALONE_KEPT;
    save->lost = state == RUN_ALONE_FAILED;
    if (save->kept)
        run_standing_keep(&context->job->standing, save->step);
    if (save->kept && context->rank->comm->rank == 0)
        mics_log(MICS_LOG_INFO, "step %lld is in node memory", (long long)save->step);
    if (save->lost && context->rank->comm->rank == 0)
        mics_log(MICS_LOG_WARNING,
                 "step %lld is not kept in node memory; it goes to disk until run.grace_s is over",
                 (long long)save->step);
}

static void serve_save(run_saver *self, run_save *save)
{
    run_stop *stop = &self->context->job->stop;
    if (save->alone) {
        run_stop_writes(stop, true);
        keep_if_late(self, save);
        run_stop_writes(stop, false);
    }
    const double begin_us = mics_clock_us();
    if (save->copies) {
        set_state(self, save, RUN_SAVE_COPYING);
        run_share_copy(self);
    }
    set_state(self, save, RUN_SAVE_WRITING);
    run_stop_writes(stop, true);
    save->status = write_share(self, save);
    run_stop_writes(stop, false);
    if (save->status == MICS_OK && self->context->rank->comm->rank == 0)
        save->status = commit(self, save);
    atomic_store(&stop->save_s, (mics_clock_us() - begin_us) / 1e6);
    set_state(self, save, save->status == MICS_OK ? RUN_SAVE_DONE : RUN_SAVE_FAILED);
}

// ---- the thread ----

// A step that ends soon is waited for: replicas are compared then before their state is saved.
static bool ends_soon(const mics_job *job)
{
    static const double SOON_S = 1, OF_GRACE = 0.25;
    const double step_s = atomic_load(&job->stop.step_s);
    return step_s > 0 && step_s < SOON_S && step_s < OF_GRACE * job->run->grace_s;
}

// The state of the step before may be written while the rank computes what nobody will use. What is
// seen as a copy, the engine copies between steps alone.
static bool begins_direct(run_saver *self)
{
    const run_context *context = self->context;
    if (!self->in_step || self->direct.state != RUN_SAVE_NONE ||
        !mics_engine_hold(context->engine) || mics_engine_copies_states(context->job->schedule) ||
        run_progress_is_saved(context->progress) || ends_soon(context->job))
        return false;
    run_share_fill_direct(self);
    self->direct.alone = true;
    self->direct.state = RUN_SAVE_QUEUED;
    return true;
}

// A rank that has written its share by itself may have to end while rank 0 is in a step, and cannot
// say that it has committed. Called with the mutex.
static void look_for_commit(run_saver *self)
{
    const run_save *save = &self->direct;
    run_standing *standing = &self->context->job->standing;
    if (!save->alone || save->state != RUN_SAVE_DONE)
        return;
    if (atomic_load(&standing->saved) != save->step &&
        mics_checkpoint_save_is_committed(save->saving))
        run_standing_save(standing, save->step);
}

static void sleep_awhile(run_saver *self)
{
    mics_condition_wait(&self->changed, &self->mutex, POLL_US);
}

// Called with the mutex.
static run_save *next_save(run_saver *self)
{
    if (self->behind.state == RUN_SAVE_QUEUED)
        return &self->behind;
    return self->direct.state == RUN_SAVE_QUEUED ? &self->direct : NULL;
}

static void *serve(void *argument)
{
    run_saver *self = argument;
    const run_rank *rank = self->context->rank;
    mics_log_set_rank(rank->comm->ranks > 1 ? rank->comm->rank : -1);
    pthread_mutex_lock(&self->mutex);
    for (;;) {
        run_save *save = next_save(self);
        if (save != NULL) {
            pthread_mutex_unlock(&self->mutex);
            serve_save(self, save);
            pthread_mutex_lock(&self->mutex);
            continue;
        }
        if (self->prunes) {
            self->prunes = false;
            const int64_t step = self->prune_step;
            pthread_mutex_unlock(&self->mutex);
            run_share_prune(self->context, step);
            pthread_mutex_lock(&self->mutex);
            continue;
        }
        if (self->closing)
            break;
        if (rank->comm->rank == 0)
            run_stop_look(self->context->job, &self->looked_us);
        look_for_commit(self);
        if (!run_stop_is_asked(&self->context->job->stop) || !begins_direct(self))
            sleep_awhile(self);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

// ---- for the rank ----

mics_status run_saver_open(const run_context *context, float *copy, run_saver *saver)
{
    const int32_t units = context->job->model->unit_count;
    mics_memory *memory = context->rank->memory;
    saver->context = context;
    saver->copy = copy;
    MICS_TRY(MICS_NEW(memory, units, &saver->behind.shards));
    MICS_TRY(MICS_NEW(memory, units, &saver->direct.shards));
    MICS_TRY(mics_locks_init(&saver->mutex, (pthread_cond_t *[]){&saver->changed}, 1));
    saver->locks_open = true;
    if (pthread_create(&saver->thread, NULL, serve, saver) != 0)
        return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (saving)");
    saver->started = true;
    return MICS_OK;
}

void run_saver_close(run_saver *saver)
{
    if (saver->context == NULL)
        return;
    if (saver->started) {
        pthread_mutex_lock(&saver->mutex);
        saver->closing = true;
        pthread_cond_broadcast(&saver->changed);
        pthread_mutex_unlock(&saver->mutex);
        pthread_join(saver->thread, NULL);
    }
    if (saver->locks_open) {
        pthread_cond_destroy(&saver->changed);
        pthread_mutex_destroy(&saver->mutex);
    }
    mics_memory *memory = saver->context->rank->memory;
    mics_checkpoint_save_close(saver->behind.saving, saver->behind.state == RUN_SAVE_FAILED);
    mics_checkpoint_save_close(saver->direct.saving, saver->direct.state == RUN_SAVE_FAILED);
    mics_free(memory, saver->behind.shards);
    mics_free(memory, saver->direct.shards);
    *saver = (run_saver){0};
}

void run_saver_in_step(run_saver *saver, bool inside)
{
    pthread_mutex_lock(&saver->mutex);
    saver->in_step = inside;
    pthread_mutex_unlock(&saver->mutex);
}

void run_saver_start(run_saver *saver, run_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    save->gives_up = save->written = false;
    save->state = RUN_SAVE_QUEUED;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

run_save_state run_saver_state(run_saver *saver, const run_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    const run_save_state state = save->state;
    pthread_mutex_unlock(&saver->mutex);
    return state;
}

bool run_saver_writes_older(run_saver *saver)
{
    const run_save_state state = run_saver_state(saver, &saver->behind);
    return state >= RUN_SAVE_QUEUED && state <= RUN_SAVE_WRITING &&
           saver->behind.step != saver->context->progress->step;
}

void run_saver_await_copied(run_saver *saver, run_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    while (save->copies && (save->state == RUN_SAVE_QUEUED || save->state == RUN_SAVE_COPYING))
        pthread_cond_wait(&saver->changed, &saver->mutex);
    pthread_mutex_unlock(&saver->mutex);
}

void run_saver_await_kept(run_saver *saver, run_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    save->hurries = true;
    while (save->state == RUN_SAVE_QUEUED || save->state == RUN_SAVE_KEEPING)
        pthread_cond_wait(&saver->changed, &saver->mutex);
    pthread_mutex_unlock(&saver->mutex);
}

// Rank 0's file stands for all: they are about as long. Called with the mutex, which a slow terminal
// must not hold.
static void send_written(run_saver *saver)
{
    const mics_job *job = saver->context->job;
    const long long total = atomic_load(&saver->to_write), done = atomic_load(&saver->written);
    if (job->callbacks.work == NULL || saver->context->rank->comm->rank != 0 || done == 0)
        return;
    pthread_mutex_unlock(&saver->mutex);
    job->callbacks.work(job->callbacks.ctx, "saving", done < total ? done : total - 1, total);
    pthread_mutex_lock(&saver->mutex);
}

// What was shown goes.
static void send_all_written(const run_saver *saver)
{
    const mics_job *job = saver->context->job;
    if (job->callbacks.work != NULL && saver->context->rank->comm->rank == 0)
        job->callbacks.work(job->callbacks.ctx, "saving", 1, 1);
}

mics_status run_saver_await_written(run_saver *saver, run_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    while (save->state != RUN_SAVE_NONE && save->state < RUN_SAVE_WAITING) {
        sleep_awhile(saver);
        send_written(saver);
    }
    const mics_status status = save->state == RUN_SAVE_FAILED ? save->status : MICS_OK;
    pthread_mutex_unlock(&saver->mutex);
    send_all_written(saver);
    return status;
}

void run_saver_all_written(run_saver *saver, run_save *save)
{
    pthread_mutex_lock(&saver->mutex);
    save->written = true;
    pthread_mutex_unlock(&saver->mutex);
}

mics_status run_saver_await_done(run_saver *saver, run_save *save, bool others_failed)
{
    pthread_mutex_lock(&saver->mutex);
    save->gives_up = save->gives_up || others_failed;
    while (save->state != RUN_SAVE_DONE && save->state != RUN_SAVE_FAILED)
        pthread_cond_wait(&saver->changed, &saver->mutex);
    const mics_status status = save->state == RUN_SAVE_FAILED ? save->status : MICS_OK;
    pthread_mutex_unlock(&saver->mutex);
    return status;
}

void run_saver_prune(run_saver *saver, int64_t step)
{
    pthread_mutex_lock(&saver->mutex);
    saver->prunes = saver->context->rank->comm->rank == 0;
    saver->prune_step = step;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

void run_saver_end(run_saver *saver, run_save *save, bool failed)
{
    pthread_mutex_lock(&saver->mutex); // the thread may be looking at it
    assert(save->state == RUN_SAVE_NONE || save->state >= RUN_SAVE_DONE);
    mics_checkpoint_save_close(save->saving, failed);
    save->saving = NULL;
    save->state = RUN_SAVE_NONE;
    save->hurries = save->alone = save->kept = save->lost = save->written = false;
    pthread_mutex_unlock(&saver->mutex);
}
