// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The states of saves, and the threads that take them along while the rank trains.
#include "saver.h"
#include "base/clock.h"
#include "base/free.h"
#include "mics/log.h"
#include "run/ranks/stop.h"
#include <assert.h>
#include <time.h>

// How often a thread without work looks whether there is any.
static const double POLL_US = 50e3;

// ---- states ----

const run_save_move run_save_moves[RUN_SAVE_MOVES] = {
    {RUN_SAVE_IDLE, RUN_SAVE_QUEUED},     {RUN_SAVE_IDLE, RUN_SAVE_STAGING},
    {RUN_SAVE_QUEUED, RUN_SAVE_IDLE},     {RUN_SAVE_QUEUED, RUN_SAVE_STAGING},
    {RUN_SAVE_STAGING, RUN_SAVE_WRITING}, {RUN_SAVE_WRITING, RUN_SAVE_WAITING},
    {RUN_SAVE_WRITING, RUN_SAVE_FAILED},  {RUN_SAVE_WAITING, RUN_SAVE_COMMITTING},
    {RUN_SAVE_WAITING, RUN_SAVE_DONE},    {RUN_SAVE_WAITING, RUN_SAVE_FAILED},
    {RUN_SAVE_COMMITTING, RUN_SAVE_DONE}, {RUN_SAVE_COMMITTING, RUN_SAVE_FAILED},
    {RUN_SAVE_DONE, RUN_SAVE_IDLE},       {RUN_SAVE_FAILED, RUN_SAVE_IDLE},
};

// Called with the mutex.
static void enter(run_save *save, run_save_state state)
{
    int move = 0;
    while (move < RUN_SAVE_MOVES &&
           (run_save_moves[move].from != save->state || run_save_moves[move].to != state))
        move++;
    assert(move < RUN_SAVE_MOVES);
    save->saver->moved |= 1U << move;
    save->state = state;
    pthread_cond_broadcast(&save->saver->changed);
}

void run_save_enter(run_save *save, run_save_state state)
{
    pthread_mutex_lock(&save->saver->mutex);
    enter(save, state);
    pthread_mutex_unlock(&save->saver->mutex);
}

void run_save_sleep(int *wait_ms)
{
    enum { MAX_MS = 50 };
    nanosleep(&(struct timespec){.tv_nsec = *wait_ms * 1000000L}, NULL);
    *wait_ms = *wait_ms * 2 < MAX_MS ? *wait_ms * 2 : MAX_MS;
}

// ---- the way of a save ----

// Of the step that was done last; `ready`: whether its state is there to be read.
static void describe(run_save *save, mics_status ready)
{
    const run_context *context = save->saver->context;
    save->step = context->progress->step;
    save->meta = run_share_meta(context, save->step, save->counted);
    if (ready == MICS_OK)
        run_share_fill(context, save->part, save->parts, save->shards);
    save->status = ready;
    atomic_store(&save->given_up, save->saver->closing);
    atomic_store(&save->all_written, false);
    atomic_store(&save->awaited, false);
}

static mics_status pass(run_save *save)
{
    run_stop *stop = &save->saver->context->job->stop;
    const bool before = mics_log_demote(save->warns);
    run_stop_writes(stop, true);
    run_save_enter(save, RUN_SAVE_STAGING);
    save->tier->stage(save);
    run_save_enter(save, RUN_SAVE_WRITING);
    mics_status status = save->tier->write(save);
    run_stop_writes(stop, false);
    if (status == MICS_OK) {
        run_save_enter(save, RUN_SAVE_WAITING);
        status = save->tier->commit(save);
    }
    mics_log_demote(before);
    save->status = status;
    run_save_enter(save, status == MICS_OK ? RUN_SAVE_DONE : RUN_SAVE_FAILED);
    return status;
}

// ---- the thread ----

// The keeper's own copy is for a direct save that would miss the deadline, or that has not ended at half
// of the time.
static void serve_save(run_save *save)
{
    run_saver *self = save->saver;
    run_stop *stop = &self->context->job->stop;
    const double begin_us = mics_clock_us();
    bool needed = true;
    if (save == &self->saves[RUN_COPY]) {
        run_stop_writes(stop, true);
        needed = save->due || run_saver_misses_deadline(self);
        run_stop_writes(stop, false);
    }
    if (!needed) {
        run_save_enter(save, RUN_SAVE_IDLE);
        return;
    }
    (void)pass(save);
    if (save != &self->saves[RUN_COPY])
        atomic_store(&stop->save_s, (mics_clock_us() - begin_us) / 1e6);
}

// A step that ends soon is waited for: replicas are compared then before their state is saved.
static bool ends_soon(const mics_job *job)
{
    static const double SOON_S = 1, OF_GRACE = 0.25;
    const double step_s = atomic_load(&job->stop.step_s);
    return step_s > 0 && step_s < SOON_S && step_s < OF_GRACE * job->run->grace_s;
}

// Whether a thread may read the state while the rank is in a step that does not count. Host copies of
// states are made between steps alone, and islands may meet in the step, and learn in it what counted
// in the one before.
static bool is_readable(const run_context *context)
{
    return !mics_engine_copies_states(context->job->schedule) && run_job_islands(context->job) == 1;
}

// The state of the step before may be written while the rank computes a step that will not count.
// Called with the mutex.
static bool begins_direct(run_saver *self)
{
    const run_context *context = self->context;
    if (!self->stands || self->saves[RUN_DIRECT].state != RUN_SAVE_IDLE ||
        !mics_engine_hold(context->engine) || !is_readable(context) ||
        run_progress_is_saved(context->progress) || ends_soon(context->job))
        return false;
    for (int i = RUN_COPY; i <= RUN_DIRECT; i++) {
        describe(&self->saves[i], MICS_OK);
        self->saves[i].by_saver = self->saves[i].to_stop = true;
        enter(&self->saves[i], RUN_SAVE_QUEUED);
    }
    return true;
}

static bool was_asked(const run_stop *stop, double seconds)
{
    return atomic_load(&stop->reason) == RUN_STOP_PROGRAM &&
           mics_clock_us() - atomic_load(&stop->asked_us) > seconds * 1e6;
}

bool run_saver_is_half_over(const run_saver *self)
{
    const mics_job *job = self->context->job;
    return was_asked(&job->stop, job->run->grace_s / 2);
}

// Whether the step that was done last is nowhere yet, and may be copied while the rank is busy.
static bool lacks_copy(const run_saver *self)
{
    const run_context *context = self->context;
    const mics_job *job = context->job;
    const int64_t step = context->progress->step;
    return !self->changes && self->saves[RUN_COPY].state == RUN_SAVE_IDLE &&
           job->node.root != NULL && is_readable(context) &&
           atomic_load(&job->standing.saved) != step && atomic_load(&job->standing.kept) != step;
}

// Called with the mutex.
static void begin_copy(run_saver *self, bool outlives)
{
    run_save *copy = &self->saves[RUN_COPY];
    describe(copy, MICS_OK);
    copy->by_saver = copy->to_stop = copy->due = true;
    copy->outlives = outlives;
    enter(copy, RUN_SAVE_QUEUED);
}

// Where a shard is on one rank alone, the others do not have the state.
static bool can_outlive(const run_saver *self)
{
    const run_context *context = self->context;
    return context->job->run->sharding.optimizer < context->rank->comm->ranks;
}

// Called with the mutex.
static bool begins_to_outlive(run_saver *self)
{
    const run_context *context = self->context;
    if (!lacks_copy(self) || !can_outlive(self) ||
        !mics_engine_freeze(context->engine, context->progress->step))
        return false;
    begin_copy(self, true);
    return true;
}

// Half of the time to stop in is over: the disk has not got the step, or the step that runs does not
// end, as where others are lost: the agreement of ranks that live comes soon, and a frozen engine would
// not follow it. Called with the mutex.
static bool begins_due(run_saver *self)
{
    static const double SOON_S = 2;
    if (!self->stands || !run_saver_is_half_over(self) || !lacks_copy(self))
        return false;
    if (!mics_engine_hold(self->context->engine))
        return was_asked(&self->context->job->stop, SOON_S) && begins_to_outlive(self);
    begin_copy(self, can_outlive(self));
    return true;
}

void run_saver_outlive(run_saver *self)
{
    if (self->started == 0)
        return;
    run_save *copy = &self->saves[RUN_COPY];
    const double begin_us = mics_clock_us(),
                 limit_us = self->context->job->run->comm_timeout_s * 1e6;
    pthread_mutex_lock(&self->mutex);
    (void)begins_to_outlive(self); // the rank waits, wherever it is
    while (copy->state != RUN_SAVE_IDLE && copy->state < RUN_SAVE_DONE &&
           mics_clock_us() - begin_us < limit_us)
        mics_condition_wait(&self->changed, &self->mutex, POLL_US);
    pthread_mutex_unlock(&self->mutex);
}

// A rank that has written its part by itself may have to end while rank 0 is in a step, and cannot
// say that it has committed. Called with the mutex.
static void look_for_commit(run_saver *self)
{
    const run_save *save = &self->saves[RUN_DIRECT];
    run_standing *standing = &self->context->job->standing;
    if (save->state != RUN_SAVE_DONE || !save->by_saver)
        return;
    if (atomic_load(&standing->saved) != save->step &&
        mics_checkpoint_save_is_committed(save->file))
        run_standing_save(standing, save->step);
}

// A copy that is made for want of time comes before the direct save. Called with the mutex.
static run_save *next_save(run_saver *self)
{
    const run_save_state copy = self->saves[RUN_COPY].state;
    const bool copies = copy != RUN_SAVE_IDLE && copy < RUN_SAVE_DONE;
    for (int i = 0; i < RUN_SAVES; i++) {
        if (self->saves[i].state == RUN_SAVE_QUEUED && i != RUN_COPY &&
            !(i == RUN_DIRECT && copies))
            return &self->saves[i];
    }
    return NULL;
}

// Called with the mutex, which it gives up while it works. Returns: whether there was any work.
static bool serve_next(run_saver *self)
{
    run_save *save = next_save(self);
    const bool prunes = save == NULL && self->prunes;
    const int64_t step = self->prune_step;
    if (save == NULL && !prunes)
        return false;
    self->prunes = self->prunes && !prunes;
    pthread_mutex_unlock(&self->mutex);
    if (prunes)
        self->saves[RUN_DIRECT].tier->prune(self, step);
    else
        serve_save(save);
    pthread_mutex_lock(&self->mutex);
    return true;
}

static void begin_thread(run_saver *self)
{
    const mics_comm *comm = self->context->rank->comm;
    mics_log_set_rank(comm->ranks > 1 ? comm->rank : -1);
    pthread_mutex_lock(&self->mutex);
}

// Writes to disk.
static void *serve(void *argument)
{
    run_saver *self = argument;
    begin_thread(self);
    while (serve_next(self) || !self->closing) {
        if (next_save(self) == NULL && !self->prunes && !self->closing)
            mics_condition_wait(&self->changed, &self->mutex, POLL_US);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

// Called with the mutex, which it gives up while it works. Returns: whether there was any work.
static bool keep_next(run_saver *self)
{
    if (self->saves[RUN_COPY].state != RUN_SAVE_QUEUED)
        return false;
    pthread_mutex_unlock(&self->mutex);
    serve_save(&self->saves[RUN_COPY]);
    pthread_mutex_lock(&self->mutex);
    return true;
}

// Looks whether the run is to stop, and keeps the state in node memory then, whatever the disk does.
static void *keep(void *argument)
{
    run_saver *self = argument;
    mics_job *job = self->context->job;
    begin_thread(self);
    while (keep_next(self) || !self->closing) {
        if (self->closing)
            continue;
        if (run_is_rank_0(self->context))
            run_stop_look(job, &self->looked_us);
        look_for_commit(self);
        if ((!run_stop_is_asked(&job->stop) || !begins_direct(self)) && !begins_due(self))
            mics_condition_wait(&self->changed, &self->mutex, POLL_US);
    }
    pthread_mutex_unlock(&self->mutex);
    return NULL;
}

// ---- opening and closing ----

static mics_status open_save(run_saver *saver, run_save *save)
{
    const run_context *context = saver->context;
    const mics_mesh *mesh = &context->job->schedule->spec.mesh;
    const mics_outer_state outer = mics_engine_outer_state(context->engine);
    const int32_t rank = context->rank->comm->rank, ranks = context->rank->comm->ranks;
    const int32_t owners = mesh->sharding.optimizer;
    const bool copy = save == &saver->saves[RUN_COPY];
    save->saver = saver;
    const bool quarantine = save == &saver->saves[RUN_QUARANTINE];
    save->dir = quarantine ? context->job->quarantine_dir : context->job->checkpoints_dir;
    save->writers = quarantine && mesh->islands == 1 ? owners : ranks;
    save->part = rank < save->writers ? rank % mesh->ranks / owners : 0;
    save->parts = save->writers / mesh->islands / owners;
    save->warns = save != &saver->saves[RUN_DIRECT];
    MICS_TRY(MICS_NEW(context->rank->memory, run_share_count(context->job), &save->shards));
    MICS_TRY(MICS_NEW(context->rank->memory, outer.windows * outer.islands, &save->counted));
    if (!copy)
        return MICS_OK;
    save->copy.keep = mics_mesh_keep(mesh, rank);
    save->part = save->copy.keep.part;
    save->parts = save->copy.keep.parts;
    return MICS_NEW(context->rank->memory, ranks, &save->copy.reports);
}

mics_status run_saver_open(const run_context *context, float *staging, run_saver *saver)
{
    static void *(*const mains[RUN_SAVER_THREADS])(void *) = {serve, keep};
    saver->context = context;
    saver->staging = staging;
    saver->slot = context->job->node.slot;
    atomic_store(&saver->good, context->progress->saved);
    for (int i = 0; i < RUN_SAVES; i++)
        MICS_TRY(open_save(saver, &saver->saves[i]));
    MICS_TRY(mics_locks_init(&saver->mutex, (pthread_cond_t *[]){&saver->changed}, 1));
    saver->locks_open = true;
    for (; saver->started < RUN_SAVER_THREADS; saver->started++) {
        if (pthread_create(&saver->threads[saver->started], NULL, mains[saver->started], saver) !=
            0)
            return mics_fail(MICS_ERR_MEMORY, "the system starts no more threads (saving)");
    }
    return MICS_OK;
}

static void end_threads(run_saver *saver)
{
    pthread_mutex_lock(&saver->mutex);
    saver->closing = true;
    for (int i = 0; i < RUN_SAVES; i++)
        atomic_store(&saver->saves[i].given_up, true);
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
    while (saver->started > 0)
        pthread_join(saver->threads[--saver->started], NULL);
}

void run_saver_close(run_saver *saver)
{
    if (saver->context == NULL)
        return;
    if (saver->started > 0)
        end_threads(saver);
    if (saver->locks_open) {
        pthread_cond_destroy(&saver->changed);
        pthread_mutex_destroy(&saver->mutex);
    }
    for (int i = 0; i < RUN_SAVES; i++) {
        run_save *save = &saver->saves[i];
        mics_checkpoint_save_close(save->file, save->state == RUN_SAVE_FAILED);
        MICS_FREE_ALL(saver->context->rank->memory, save->copy.staging, save->copy.slot,
                      save->copy.reports, save->shards, save->counted);
    }
    *saver = (run_saver){0};
}

// ---- for the rank ----

void run_saver_stands(run_saver *saver, bool still)
{
    pthread_mutex_lock(&saver->mutex);
    saver->stands = still;
    pthread_mutex_unlock(&saver->mutex);
}

void run_saver_changes(run_saver *saver, bool changes)
{
    pthread_mutex_lock(&saver->mutex);
    saver->changes = changes;
    pthread_mutex_unlock(&saver->mutex);
}

void run_saver_start(run_save *save)
{
    describe(save, MICS_OK);
    // Host copies may be asked for by others as soon as this returns.
    if (save->stages && mics_engine_copies_states(save->saver->context->job->schedule)) {
        save->tier->stage(save);
        save->stages = false;
    }
    run_save_enter(save, RUN_SAVE_QUEUED);
}

mics_status run_saver_run(run_save *save, mics_status ready)
{
    describe(save, ready);
    return pass(save);
}

run_save_state run_saver_state(run_save *save)
{
    pthread_mutex_lock(&save->saver->mutex);
    const run_save_state state = save->state;
    pthread_mutex_unlock(&save->saver->mutex);
    return state;
}

// Rank 0's file stands for all: they are about as long. Called with the mutex, which a slow terminal
// must not hold.
static void send_written(run_saver *saver)
{
    const mics_job *job = saver->context->job;
    const long long total = atomic_load(&saver->to_write), done = atomic_load(&saver->written);
    if (job->callbacks.work == NULL || !run_is_rank_0(saver->context) || done == 0)
        return;
    pthread_mutex_unlock(&saver->mutex);
    job->callbacks.work(job->callbacks.ctx, "saving", done < total ? done : total - 1, total);
    pthread_mutex_lock(&saver->mutex);
}

// Called with the mutex.
static bool is_past(const run_save *save, run_save_state last)
{
    return save->state == RUN_SAVE_IDLE || save->state > last;
}

// Called with the mutex.
static void await_briefly(run_save *save, run_save_state last)
{
    mics_condition_wait(&save->saver->changed, &save->saver->mutex, POLL_US);
    if (last == RUN_SAVE_WRITING)
        send_written(save->saver);
}

bool run_saver_await_briefly(run_save *save, run_save_state last)
{
    pthread_mutex_lock(&save->saver->mutex);
    if (!is_past(save, last))
        await_briefly(save, last);
    const bool past = is_past(save, last);
    pthread_mutex_unlock(&save->saver->mutex);
    return past;
}

static mics_status await_past(run_save *save, run_save_state last)
{
    run_saver *saver = save->saver;
    pthread_mutex_lock(&saver->mutex);
    while (!is_past(save, last))
        await_briefly(save, last);
    const mics_status status = save->state == RUN_SAVE_FAILED ? save->status : MICS_OK;
    pthread_mutex_unlock(&saver->mutex);
    return status;
}

void run_saver_await_staged(run_save *save)
{
    if (save->stages)
        (void)await_past(save, RUN_SAVE_STAGING);
}

mics_status run_saver_await_written(run_save *save)
{
    const mics_job *job = save->saver->context->job;
    const mics_status status = await_past(save, RUN_SAVE_WRITING);
    if (job->callbacks.work != NULL && run_is_rank_0(save->saver->context)) // the line goes
        job->callbacks.work(job->callbacks.ctx, "saving", 1, 1);
    return status;
}

mics_status run_saver_await_done(run_save *save, bool others_failed)
{
    if (others_failed)
        atomic_store(&save->given_up, true);
    atomic_store(&save->awaited, true);
    return await_past(save, RUN_SAVE_COMMITTING);
}

bool run_saver_misses_deadline(run_saver *saver)
{
    run_save *older = &saver->saves[RUN_BACKGROUND];
    const run_save_state state = run_saver_state(older);
    const bool writes = state != RUN_SAVE_IDLE && state <= RUN_SAVE_WRITING &&
                        older->step != saver->context->progress->step;
    return run_share_misses_deadline(saver->context, atomic_load(&saver->rate), writes,
                                     &saver->deadline);
}

void run_saver_prune(run_saver *saver, int64_t step)
{
    pthread_mutex_lock(&saver->mutex);
    saver->prunes = run_is_rank_0(saver->context);
    saver->prune_step = step;
    pthread_cond_broadcast(&saver->changed);
    pthread_mutex_unlock(&saver->mutex);
}

void run_saver_end(run_save *save, bool failed)
{
    pthread_mutex_lock(&save->saver->mutex); // the thread may be looking at it
    mics_checkpoint_save_close(save->file, failed);
    save->file = NULL;
    save->by_saver = save->to_stop = save->due = save->outlives = false;
    if (save->state != RUN_SAVE_IDLE)
        enter(save, RUN_SAVE_IDLE);
    pthread_mutex_unlock(&save->saver->mutex);
}
