// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Saves of a rank that trains: when each begins, and what all ranks alike make of its end.
//
// Of a checkpoint every rank writes: of the n / O ranks that hold an optimizer shard alike, each a
// part. The background save is written behind the next steps. Ranks tell in each step's agreement
// what became of it, so all learn alike whether it is there, whether it failed, and whether older
// checkpoints may go. The direct save, at the end or to stop, is waited for.
//
// A copy in node memory is made between steps. One that fails is a warning: training goes on, and the
// copy before it counts. To stop, a copy is made where the disk is too slow for run.grace_s.
//
// Older checkpoints are removed once a step after the newer one was good, or the run has ended.
#include "saving.h"
#include "base/clock.h"
#include "base/size.h"
#include "mics/log.h"
#include "run/save/disk_space.h"
#include "saving_copy.h"
#include <stdio.h>
#include <time.h>

// ---- when a save has ended, on all ranks alike ----

static void report_saved(const run_context *context, int64_t step)
{
    const mics_job *job = context->job;
    char path[RUN_PATH_BYTES];
    if (!run_is_rank_0(context) || job->callbacks.checkpoint == NULL)
        return;
    snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, (long long)step);
    job->callbacks.checkpoint(job->callbacks.ctx, step, path);
}

static void end_save(run_saving *self, run_save *save, bool failed)
{
    const int64_t step = save->step;
    run_saver_end(save, failed);
    run_progress_end_save(self->context->progress, step, !failed);
    mics_engine_sync_whole(self->context->engine);
    if (failed)
        return;
    self->prune_due = step;
    if (self->updated > step) // trained from it, while it was written
        atomic_store(&self->saver.good, step);
    self->lacks_space = false;
    run_memory_tier.prune(&self->saver, step);
    self->saved(self->saved_ctx, step);
    report_saved(self->context, step);
}

// One line of all ranks; those that failed have said why.
static void warn_unsaved(run_saving *self, int64_t step, bool full)
{
    const run_context *context = self->context;
    char until[80] = "nothing is saved yet";
    if (context->progress->saved != RUN_NO_STEP)
        snprintf(until, sizeof until, "until then --resume auto goes on from step %lld",
                 (long long)context->progress->saved);
    if (run_is_rank_0(context))
        mics_log(MICS_LOG_WARNING,
                 "step %lld could not be saved%s; training goes on, and saves when it is due next; "
                 "%s",
                 (long long)step, full ? ", as the disk is full" : "", until);
    self->lacks_space = full;
}

// Waits for a save to be past a state on all ranks. They look together, time and again, whether a stop
// leaves half of its time: the step that was done last goes to node memory then, whatever the disk does.
static mics_status await_on_all(run_saving *self, run_save *save, run_save_state last)
{
    for (;;) {
        bool waits = !run_saver_await_briefly(save, last);
        MICS_TRY(mics_engine_any(self->context->engine, waits, &waits));
        if (!waits)
            return MICS_OK;
        MICS_TRY(run_saving_copy_at_half(self));
    }
}

// Waits for a save on all ranks: their files first, then the commit.
static mics_status await_save(run_saving *self, run_save *save)
{
    mics_engine *engine = self->context->engine;
    mics_status status = await_on_all(self, save, RUN_SAVE_WRITING);
    if (status == MICS_OK)
        status = mics_engine_agree(engine, run_saver_await_written(save));
    if (status == MICS_OK) {
        atomic_store(&save->all_written, true);
        status = await_on_all(self, save, RUN_SAVE_COMMITTING);
    }
    const mics_status mine = run_saver_await_done(save, status != MICS_OK);
    return status == MICS_OK ? mics_engine_agree(engine, mine) : status;
}

static bool is_pending(const run_saving *self)
{
    return self->context->progress->saving != RUN_NO_STEP;
}

// The background save, if there is one. Its failure is no error, but the world's end is one.
static mics_status settle_background(run_saving *self)
{
    run_save *save = save_of(self, RUN_BACKGROUND);
    const int64_t step = save->step;
    const double begin_us = mics_clock_us();
    if (!is_pending(self))
        return MICS_OK;
    const mics_status status = await_save(self, save);
    end_save(self, save, status != MICS_OK);
    if (status != MICS_OK) {
        // A state that is not finite ends the run, on all ranks; no other save that fails does. The
        // question fails where there is no world any more.
        bool poisoned = false;
        MICS_TRY(mics_engine_any(self->context->engine, status == MICS_ERR_NUMERIC, &poisoned));
        if (poisoned)
            return MICS_ERR_NUMERIC;
        bool full = false;
        MICS_TRY(mics_engine_any(self->context->engine, status == MICS_ERR_FULL, &full));
        warn_unsaved(self, step, full);
    }
    const double waited_s = (mics_clock_us() - begin_us) / 1e6;
    if (waited_s > 1 && run_is_rank_0(self->context))
        run_job_note(self->context->job,
                     "training waited %.1f s for the save of step %lld; a larger "
                     "run.checkpoint_every would not",
                     waited_s, (long long)step);
    return MICS_OK;
}

// ---- saves that somebody waits for ----

// A state that some rank cannot write to disk before the deadline goes to node memory first, unless
// savers have made a copy in the middle of the step: then all ranks make one here.
static mics_status copy_before_deadline(run_saving *self, bool lost)
{
    const run_context *context = self->context;
    const bool needed = run_saver_misses_deadline(&self->saver) && !lost;
    bool some = false;
    MICS_TRY(mics_engine_any(context->engine, needed, &some));
    if (!some)
        return MICS_OK;
    self->tried = context->progress->step;
    return run_saving_copy(self, true, &some);
}

// From the engine's memory, which is released once the save has ended. What this rank's saver has not
// begun, it begins now.
static mics_status start_from_engine(run_saving *self, run_save *save)
{
    const bool begun = run_saver_state(save) != RUN_SAVE_IDLE;
    MICS_TRY(mics_engine_agree(self->context->engine, begun ? MICS_OK : run_saving_hold(self)));
    if (!begun)
        run_saver_start(save);
    return MICS_OK;
}

static mics_status save_direct(run_saving *self)
{
    run_save *direct = save_of(self, RUN_DIRECT);
    MICS_TRY(start_from_engine(self, direct));
    const mics_status status = await_save(self, direct);
    end_save(self, direct, status != MICS_OK);
    run_saving_release(self);
    return status;
}

// *full_out, alike on all ranks: it found no space, which no rank calls an error yet.
static mics_status save_unless_full(run_saving *self, bool *full_out)
{
    const mics_status status = save_direct(self);
    *full_out = false;
    if (status == MICS_OK)
        return MICS_OK;
    // Who has the answer may end the world before others have it: their reason stands.
    if (mics_engine_any(self->context->engine, status == MICS_ERR_FULL, full_out) != MICS_OK)
        return status;
    return *full_out ? MICS_OK : status;
}

mics_status run_saving_quarantine(run_saving *self)
{
    run_save *save = save_of(self, RUN_QUARANTINE);
    MICS_TRY(start_from_engine(self, save));
    const mics_status status = await_save(self, save);
    run_saver_end(save, status != MICS_OK);
    run_saving_release(self);
    return status;
}

static void announce(const run_context *context)
{
    const mics_job_callbacks *callbacks = &context->job->callbacks;
    if (run_is_rank_0(context) && callbacks->saving != NULL)
        callbacks->saving(callbacks->ctx, context->progress->step);
}

static bool is_saved(const run_saving *self)
{
    return self->context->progress->saved == self->context->progress->step;
}

// How long a save that finds no space is tried again: as long as a stop has, from its request on.
static bool is_over(const run_context *context, double begin_us)
{
    const run_stop *stop = &context->job->stop;
    const double asked_us = run_stop_is_asked(stop) ? atomic_load(&stop->asked_us) : begin_us;
    return mics_clock_us() - asked_us > context->job->run->grace_s * 1e6;
}

static void log_no_space(const run_saving *self, bool again)
{
    const run_context *context = self->context;
    const long long step = (long long)context->progress->step;
    const bool kept = context->progress->kept == step;
    char needed[32];
    mics_size_text((double)run_disk_space_needed(context->job), needed, sizeof needed);
    if (!run_is_rank_0(context))
        return;
    if (again)
        mics_log(MICS_LOG_WARNING,
                 "%s has no space for step %lld (%s), which is %s; the save is tried again until "
                 "run.grace_s (%g s) is over: free space there",
                 context->job->checkpoints_dir, step, needed,
                 kept ? "in node memory" : "nowhere else", context->job->run->grace_s);
    else if (kept)
        mics_fail(MICS_ERR_FULL,
                  "%s has no space for step %lld (%s), which is in node memory alone; free space "
                  "there, and start the run again on the same nodes: --resume auto resumes from it",
                  context->job->checkpoints_dir, step, needed);
    else
        mics_fail(MICS_ERR_FULL,
                  "%s has no space for step %lld (%s), and node memory has none: it is lost; free "
                  "space there, and start the run again: --resume auto resumes from the newest "
                  "checkpoint",
                  context->job->checkpoints_dir, step, needed);
}

// What finds no space is kept in node memory, and tried again for a while. A run that is to stop ends
// with it there.
static mics_status try_until_space(run_saving *self)
{
    static const struct timespec AWHILE = {.tv_nsec = 500 * 1000000L};
    const run_context *context = self->context;
    const double begin_us = mics_clock_us();
    bool kept = false, full = true, over = false;
    if (!run_saving_is_safe(self))
        MICS_TRY(run_saving_copy(self, true, &kept));
    log_no_space(self, true);
    while (full) {
        MICS_TRY(mics_engine_any(context->engine,
                                 run_is_rank_0(context) && is_over(context, begin_us), &over));
        if (over) {
            log_no_space(self, false);
            return MICS_ERR_FULL;
        }
        nanosleep(&AWHILE, NULL);
        MICS_TRY(save_unless_full(self, &full));
    }
    return MICS_OK;
}

static mics_status save_now(run_saving *self)
{
    bool kept = false, lost = false;
    MICS_TRY(run_saving_take_copy(self, &kept, &lost));
    if (is_saved(self))
        return settle_background(self);
    if (!run_saving_is_safe(self))
        MICS_TRY(copy_before_deadline(self, lost)); // before the background save is waited for
    MICS_TRY(settle_background(self));
    if (is_saved(self))
        return MICS_OK;
    announce(self->context);
    bool full = false;
    MICS_TRY(save_unless_full(self, &full));
    if (full)
        MICS_TRY(try_until_space(self));
    // A run that resumes from here has none either.
    mics_engine_forget_residual(self->context->engine);
    return MICS_OK;
}

static mics_status save_and_wait(run_saving *self)
{
    run_stop *stop = &self->context->job->stop;
    MICS_TRY(run_await_files(self->context));
    run_stop_writes(stop, true);
    self->keeps = true;
    const mics_status status = save_now(self);
    self->keeps = false;
    run_stop_writes(stop, false);
    MICS_TRY(status);
    return run_await_collectives(self->context);
}

mics_status run_saving_settle(run_saving *self)
{
    if (!is_pending(self))
        return MICS_OK;
    MICS_TRY(run_await_files(self->context));
    MICS_TRY(settle_background(self));
    return run_await_collectives(self->context);
}

// The same of a state that may be kept, should the run stop meanwhile.
static mics_status settle_good(run_saving *self)
{
    self->keeps = true;
    const mics_status status = run_saving_settle(self);
    self->keeps = false;
    return status;
}

static void drop_own(run_saving *self)
{
    run_save *copy = save_of(self, RUN_COPY), *direct = save_of(self, RUN_DIRECT);
    if (run_saver_state(direct) == RUN_SAVE_IDLE)
        return;
    (void)run_saver_await_done(copy, true);
    const bool done = run_saver_await_done(direct, true) == MICS_OK;
    if (self->saver.deadline.missed)
        run_copy_withdraw(copy);
    if (done && run_is_rank_0(self->context)) // it was whole already
        run_disk_withdraw(direct);
    run_saver_end(copy, true);
    run_saver_end(direct, true);
}

void run_saving_drop(run_saving *self)
{
    drop_own(self);
    // Who looks for a state to go back to finds none of it on any node. A failure is that of the next
    // collective, too.
    if (run_await_files(self->context) == MICS_OK &&
        mics_engine_agree(self->context->engine, MICS_OK) == MICS_OK)
        (void)run_await_collectives(self->context);
}

// ---- the background save ----

// Where there is no memory to stage it, the ranks wait, and a failure is still no error.
static mics_status start_background(run_saving *self)
{
    run_save *save = save_of(self, RUN_BACKGROUND);
    MICS_TRY(run_saving_hold(self));
    save->stages = self->saver.staging != NULL;
    run_progress_begin_save(self->context->progress);
    run_saver_start(save);
    const mics_status status = self->saver.staging == NULL ? settle_background(self) : MICS_OK;
    run_saving_release(self);
    return status;
}

static mics_status begin_background(run_saving *self)
{
    const bool begun = run_saver_state(save_of(self, RUN_DIRECT)) != RUN_SAVE_IDLE;
    bool some = false;
    // Savers have begun by themselves to save this step: the run is to stop, and was asked while it
    // validated. Two saves of a step would wait for each other's files.
    MICS_TRY(mics_engine_any(self->context->engine, begun, &some));
    if (some)
        return save_and_wait(self);
    if (is_pending(self) || self->saver.staging == NULL)
        MICS_TRY(run_await_files(self->context));
    MICS_TRY(settle_background(self));
    announce(self->context);
    mics_engine_forget_residual(self->context->engine);
    MICS_TRY(start_background(self));
    return run_await_collectives(self->context);
}

// A stop that comes while an older save is waited for gives the step that was done last its time.
static mics_status begin(run_saving *self)
{
    run_stop *stop = &self->context->job->stop;
    run_stop_writes(stop, true);
    self->keeps = true;
    const mics_status status = begin_background(self);
    self->keeps = false;
    run_stop_writes(stop, false);
    return status;
}

mics_status run_saving_provide(run_saving *self, run_need need)
{
    const run_context *context = self->context;
    if (need == RUN_NEEDS_SAVING)
        return begin(self);
    if (need == RUN_NEEDS_SETTLED && !run_progress_is_saved(context->progress))
        MICS_TRY(begin(self));
    if (need == RUN_NEEDS_SETTLED)
        return settle_good(self);
    if (need >= RUN_NEEDS_SAVED)
        MICS_TRY(save_and_wait(self));
    if (need == RUN_NEEDS_ENDED)
        run_saver_prune(&self->saver, context->progress->step);
    return MICS_OK;
}

// ---- around a step ----

void run_saving_allow_reading(run_saving *self, bool still)
{
    run_saver_stands(&self->saver, still);
}

static void before_update(void *state)
{
    run_saver_await_staged(save_of(state, RUN_BACKGROUND));
}

// What this rank tells the others of its background save.
static uint32_t news_of(run_save *save, bool first)
{
    const run_save_state now = run_saver_state(save);
    if (now == RUN_SAVE_FAILED)
        return RUN_SENDS_UNSAVED | (save->status == MICS_ERR_NUMERIC ? RUN_SENDS_POISONED
                                    : save->status == MICS_ERR_FULL  ? RUN_SENDS_FULL
                                                                     : 0U);
    if (now == RUN_SAVE_DONE)
        return first ? RUN_SENDS_SAVED : 0;
    return now < RUN_SAVE_WAITING ? RUN_SENDS_WRITES : 0;
}

static void before_step(void *state)
{
    run_saving *self = state;
    mics_engine *engine = self->context->engine;
    if (is_pending(self))
        mics_engine_tell(engine,
                         news_of(save_of(self, RUN_BACKGROUND), run_is_rank_0(self->context)));
    if (run_stop_is_asked(&self->context->job->stop))
        (void)mics_engine_hold(engine);
    run_saving_allow_reading(self, true);
}

// What became of the background save, by the news of all ranks. It goes on where a rank is not done
// with its part, though rank 0 may have found the file and committed: the rank's thread would take the
// next save for this one.
static mics_status take_news(run_saving *self, uint32_t told)
{
    run_save *save = save_of(self, RUN_BACKGROUND);
    const int64_t step = save->step;
    if ((told & RUN_SENDS_UNSAVED) != 0) {
        (void)run_saver_await_done(save, true);
        end_save(self, save, true);
        if ((told & RUN_SENDS_POISONED) != 0)
            return MICS_ERR_NUMERIC; // a rank has said which state
        warn_unsaved(self, step, (told & RUN_SENDS_FULL) != 0);
    } else if ((told & RUN_SENDS_WRITES) == 0) {
        if ((told & RUN_SENDS_SAVED) != 0)
            end_save(self, save, false);
        else
            atomic_store(&save->all_written, true);
    }
    return MICS_OK;
}

static mics_status end_step(void *state, const run_step *at, mics_status status)
{
    run_saving *self = state;
    run_saving_allow_reading(self, false);
    // Not before: the saver would take this step's state for the last's.
    mics_engine_next_ballot(self->context->engine);
    MICS_TRY(status);
    if (is_pending(self))
        MICS_TRY(take_news(self, at->told));
    if (at->result.verdict == MICS_VERDICT_UPDATED)
        self->updated = at->number;
    // A good step came after the save, also where somebody waited for that.
    if (self->prune_due != RUN_NO_STEP && at->result.verdict == MICS_VERDICT_UPDATED) {
        run_saver_prune(&self->saver, self->prune_due);
        atomic_store(&self->saver.good, self->prune_due);
        self->prune_due = RUN_NO_STEP;
    }
    return MICS_OK;
}

// ---- the follower ----

static size_t bytes(const mics_job *job)
{
    return job->saves_behind ? job->save_copy_bytes : 0;
}

static mics_status open_saving(void *state, const run_context *context, void *memory)
{
    run_saving *self = state;
    const size_t node_bytes = context->job->schedule->ledger.bytes[MICS_MEM_NODE];
    self->context = context;
    self->prune_due = self->tried = RUN_NO_STEP;
    for (int i = 0; i < RUN_SAVES; i++)
        save_of(self, i)->tier = i == RUN_COPY ? &run_memory_tier : &run_disk_tier;
    MICS_TRY(run_saver_open(context, memory, &self->saver));
    if (node_bytes > 0)
        MICS_TRY(mics_memory_book(context->rank->memory, MICS_MEM_NODE, node_bytes));
    self->booked = node_bytes;
    return MICS_OK;
}

static bool copy_is_due(const run_saving *self, const run_step *step)
{
    const int64_t every = self->context->job->run->memory_checkpoint_every;
    return !step->begins && (self->lacks_space || run_is_due(every, step->number));
}

// A run that was killed behind its last step is ended here too. A copy that is due is a reason to
// compare replicas, also where the disk gets the step.
static run_need needs(void *state, const run_step *step)
{
    const run_saving *self = state;
    if (step->last)
        return RUN_NEEDS_ENDED;
    if (step->begins)
        return RUN_NEEDS_NOTHING;
    if (step->stops)
        return RUN_NEEDS_SAVED;
    if (run_is_due(self->context->job->run->checkpoint_every, step->number))
        return RUN_NEEDS_SAVING;
    return copy_is_due(self, step) ? RUN_NEEDS_AGREED : RUN_NEEDS_NOTHING;
}

// The copy comes behind the checkpoint, which is the surer one.
static mics_status after_step(void *state, run_step *step)
{
    run_saving *self = state;
    const bool lacks_space = self->lacks_space;
    bool kept = false;
    if (!copy_is_due(self, step) || step->last || step->stops)
        return MICS_OK;
    self->lacks_space = false; // until the next save fails
    MICS_TRY(run_saving_copy_between(self, false, &kept));
    if (lacks_space && kept && run_is_rank_0(self->context))
        mics_log(
            MICS_LOG_WARNING,
            "step %lld is in node memory, as the disk is full; --resume auto resumes from it on "
            "the same nodes",
            (long long)step->number);
    return MICS_OK;
}

// Checkpoints that are newer than the source were not gone back to; the next copy must not take the
// place of a source in node memory.
static mics_status rewind_saving(void *state, const run_source *source)
{
    run_saving *self = state;
    if (source->step < self->prune_due)
        self->prune_due = RUN_NO_STEP;
    if (source->step < atomic_load(&self->saver.good))
        atomic_store(&self->saver.good, source->in_memory ? RUN_NO_STEP : source->step);
    self->updated = source->step < self->updated ? source->step : self->updated;
    if (source->in_memory)
        self->saver.slot = source->next_slot;
    return MICS_OK;
}

static mics_status close_saving(void *state)
{
    run_saving *self = state;
    const run_context *context = self->context;
    if (context == NULL)
        return MICS_OK;
    const mics_status status = context->job->failed == MICS_OK ? run_saving_settle(self) : MICS_OK;
    run_saver_close(&self->saver);
    if (self->booked > 0)
        mics_memory_unbook(context->rank->memory, MICS_MEM_NODE, self->booked);
    return status;
}

const run_follower run_saving_follower = {.name = "saving",
                                          .bytes = bytes,
                                          .open = open_saving,
                                          .before_step = before_step,
                                          .end_step = end_step,
                                          .before_update = before_update,
                                          .needs = needs,
                                          .after_step = after_step,
                                          .rewind = rewind_saving,
                                          .close = close_saving};
