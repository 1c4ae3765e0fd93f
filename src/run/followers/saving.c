// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a rank that trains.
//
// Every rank writes: of the n / O ranks that hold an optimizer shard alike, each a part. A save
// that the run asks for is copied and written behind the next steps (saver.h). Ranks say in each
// step's agreement what became of it, so all take alike what follows: whether it is there, whether
// it failed, and whether older checkpoints may go. Saves that somebody waits for, at the end or to
// stop, are written from the engine's memory.
//
// Older checkpoints are removed once a step after the newer one was good, or the run has ended.
#include "saving.h"
#include "base/clock.h"
#include "copies.h"
#include "mics/log.h"
#include "run/node_memory/alone.h"
#include "run/share.h"
#include <stdio.h>

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
    run_saver_end(&self->saver, save, failed);
    run_progress_end_save(self->context->progress, step, !failed);
    if (failed)
        return;
    self->prune_due = step;
    self->saved(self->saved_ctx, step);
    report_saved(self->context, step);
}

// One line of all ranks; those that failed have said why.
static void warn_unsaved(const run_context *context, int64_t step)
{
    char until[80] = "nothing is saved yet";
    if (context->progress->saved != RUN_NO_STEP)
        snprintf(until, sizeof until, "until then --resume auto goes on from step %lld",
                 (long long)context->progress->saved);
    if (run_is_rank_0(context))
        mics_log(MICS_LOG_WARNING,
                 "step %lld could not be saved; training goes on, and saves when it is due next; "
                 "%s",
                 (long long)step, until);
}

// Waits for a save on all ranks: their files first, then the commit.
static mics_status await_save(run_saving *self, run_save *save)
{
    run_saver *saver = &self->saver;
    mics_status mine = run_saver_await_written(saver, save);
    mics_status status = mics_engine_agree(self->context->engine, mine);
    if (status == MICS_OK)
        run_saver_all_written(saver, save);
    mine = run_saver_await_done(saver, save, status != MICS_OK);
    if (status == MICS_OK)
        status = mics_engine_agree(self->context->engine, mine);
    return status;
}

static bool is_pending(const run_saving *self)
{
    return self->context->progress->saving != RUN_NO_STEP;
}

// The save behind, if there is one. Its failure is no error, but the world's end is one.
static mics_status settle_behind(run_saving *self)
{
    const int64_t step = self->saver.behind.step;
    const double begin_us = mics_clock_us();
    if (!is_pending(self))
        return MICS_OK;
    const mics_status status = await_save(self, &self->saver.behind);
    end_save(self, &self->saver.behind, status != MICS_OK);
    if (status != MICS_OK) {
        // A state that is not finite ends the run, on all ranks; no other save that fails does. The
        // question fails where there is no world any more.
        bool poisoned = false;
        MICS_TRY(mics_engine_any(self->context->engine, status == MICS_ERR_NUMERIC, &poisoned));
        if (poisoned)
            return MICS_ERR_NUMERIC;
        warn_unsaved(self->context, step);
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

// What some rank cannot write in time goes to node memory first; where savers have not brought it
// there (saver.h), all ranks together do. The last step of a run is for the disk alone: nothing goes
// on from it.
static mics_status keep_if_late(run_saving *self)
{
    const run_context *context = self->context;
    run_saver *saver = &self->saver;
    run_save *direct = &saver->direct;
    bool kept = false, some = false;
    run_saver_await_kept(saver, direct);
    MICS_TRY(mics_engine_any(context->engine, direct->kept, &some));
    if (some) {
        run_copies_keep(self->copies);
        return MICS_OK;
    }
    const bool late = run_share_is_late(saver, run_saver_writes_older(saver)) && !direct->lost;
    const bool goes_on = context->progress->step < context->job->run->steps;
    MICS_TRY(mics_engine_any(context->engine, late && goes_on, &some));
    if (!some)
        return MICS_OK;
    MICS_TRY(run_copies_stop(self->copies, &kept));
    if (kept && run_is_rank_0(context))
        mics_log(MICS_LOG_INFO, "step %lld is in node memory", (long long)context->progress->step);
    return run_await_files(context);
}

// What this rank has not begun by itself (saver.h), it begins now.
static mics_status save_direct(run_saving *self)
{
    run_saver *saver = &self->saver;
    const bool begun = run_saver_state(saver, &saver->direct) != RUN_SAVE_NONE;
    MICS_TRY(mics_engine_agree(self->context->engine,
                               begun ? MICS_OK : mics_engine_download(self->context->engine)));
    if (!begun) {
        run_share_fill_direct(saver);
        run_saver_start(saver, &saver->direct);
    }
    const mics_status status = await_save(self, &saver->direct);
    end_save(self, &saver->direct, status != MICS_OK);
    mics_engine_release(self->context->engine);
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

static mics_status save_now(run_saving *self)
{
    if (is_saved(self))
        return settle_behind(self);
    MICS_TRY(keep_if_late(self)); // before a save behind the steps is waited for
    MICS_TRY(settle_behind(self));
    if (is_saved(self))
        return MICS_OK;
    announce(self->context);
    MICS_TRY(save_direct(self));
    // A run that resumes from here has none either.
    mics_engine_forget_residual(self->context->engine);
    return MICS_OK;
}

static mics_status save_and_wait(run_saving *self)
{
    run_stop *stop = &self->context->job->stop;
    MICS_TRY(run_await_files(self->context));
    run_stop_writes(stop, true);
    const mics_status status = save_now(self);
    run_stop_writes(stop, false);
    MICS_TRY(status);
    return run_await_collectives(self->context);
}

mics_status run_saving_settle(run_saving *self)
{
    if (!is_pending(self))
        return MICS_OK;
    MICS_TRY(run_await_files(self->context));
    MICS_TRY(settle_behind(self));
    return run_await_collectives(self->context);
}

static void withdraw(const run_context *context, int64_t step)
{
    const char *dir = context->job->checkpoints_dir;
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_withdraw(context->rank->memory, dir, step) != MICS_OK)
        mics_log(MICS_LOG_WARNING,
                 "%s/step-%08lld holds a state in which replicas differ; remove the folder before "
                 "the run is started again",
                 dir, (long long)step);
    mics_log_demote(before);
}

static void drop_own(run_saving *self)
{
    run_saver *saver = &self->saver;
    if (run_saver_state(saver, &saver->direct) == RUN_SAVE_NONE)
        return;
    const bool done = run_saver_await_done(saver, &saver->direct, true) == MICS_OK;
    if (saver->late) {
        run_standing_keep(&self->context->job->standing, RUN_NO_STEP);
        run_alone_drop(self->copies);
    }
    if (done && run_is_rank_0(self->context)) // it was whole already
        withdraw(self->context, saver->direct.step);
    run_saver_end(saver, &saver->direct, true);
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

// ---- saves behind steps ----

// Where there is no memory for a copy, the ranks wait, and a failure is still no error. Copies
// of shards are copied at once, as others may ask for them.
static mics_status start_behind(run_saving *self)
{
    const run_context *context = self->context;
    run_saver *saver = &self->saver;
    run_save *behind = &saver->behind;
    const bool waits = saver->copy == NULL,
               copied = mics_engine_copies_states(context->job->schedule);
    MICS_TRY(mics_engine_download(context->engine));
    behind->warns = true;
    behind->copies = !waits && !copied;
    run_share_describe(context, behind);
    if (!waits && copied)
        run_share_copy(saver);
    if (!waits)
        mics_engine_release(context->engine);
    run_progress_begin_save(context->progress);
    run_saver_start(saver, behind);
    if (!waits)
        return MICS_OK;
    const mics_status status = settle_behind(self);
    mics_engine_release(context->engine);
    return status;
}

static mics_status begin(run_saving *self)
{
    run_saver *saver = &self->saver;
    const bool begun = run_saver_state(saver, &saver->direct) != RUN_SAVE_NONE;
    bool some = false;
    // Savers have begun by themselves to save this step: the run is to stop, and was asked while it
    // validated. Two saves of a step would wait for each other's files.
    MICS_TRY(mics_engine_any(self->context->engine, begun, &some));
    if (some)
        return save_and_wait(self);
    if (is_pending(self) || saver->copy == NULL)
        MICS_TRY(run_await_files(self->context));
    MICS_TRY(settle_behind(self));
    announce(self->context);
    mics_engine_forget_residual(self->context->engine);
    MICS_TRY(start_behind(self));
    return run_await_collectives(self->context);
}

mics_status run_saving_provide(run_saving *self, run_need need)
{
    const run_context *context = self->context;
    if (need == RUN_NEEDS_SAVING)
        return begin(self);
    if (need == RUN_NEEDS_SETTLED && !run_progress_is_saved(context->progress))
        MICS_TRY(begin(self));
    if (need == RUN_NEEDS_SETTLED)
        return run_saving_settle(self);
    if (need >= RUN_NEEDS_SAVED)
        MICS_TRY(save_and_wait(self));
    if (need == RUN_NEEDS_ENDED)
        run_saver_prune(&self->saver, context->progress->step);
    return MICS_OK;
}

// ---- around a step ----

void run_saving_stands(run_saving *self, bool still)
{
    run_saver_in_step(&self->saver, still);
}

static void before_update(void *state)
{
    run_saving *self = state;
    run_saver_await_copied(&self->saver, &self->saver.behind);
}

static void before_step(void *state)
{
    run_saving *self = state;
    mics_engine *engine = self->context->engine;
    const run_save *behind = &self->saver.behind;
    const run_save_state now = run_saver_state(&self->saver, behind);
    const bool pending = is_pending(self);
    if (pending && now == RUN_SAVE_FAILED)
        mics_engine_tell(engine, RUN_TELL_UNSAVED |
                                     (behind->status == MICS_ERR_NUMERIC ? RUN_TELL_POISONED : 0));
    if (pending && now == RUN_SAVE_DONE && run_is_rank_0(self->context))
        mics_engine_tell(engine, RUN_TELL_SAVED);
    if (pending && now < RUN_SAVE_WAITING)
        mics_engine_tell(engine, RUN_TELL_WRITES);
    if (run_stop_is_asked(&self->context->job->stop))
        (void)mics_engine_hold(engine);
    run_saving_stands(self, true);
}

// What ranks have said of the save behind, when no rank has failed. It goes on where a rank is not done
// with its part, though rank 0 may have found the file and committed: the rank's thread would take the
// next save for this one.
static void take_told(run_saving *self, uint32_t told)
{
    if ((told & RUN_TELL_WRITES) != 0)
        return;
    if ((told & RUN_TELL_SAVED) != 0)
        end_save(self, &self->saver.behind, false);
    else
        run_saver_all_written(&self->saver, &self->saver.behind);
}

static mics_status end_step(void *state, const run_step *at, mics_status status)
{
    run_saving *self = state;
    run_save *behind = &self->saver.behind;
    const int64_t step = behind->step;
    run_saving_stands(self, false);
    // Not before: the saver would take this step's state for the last's.
    mics_engine_next_ballot(self->context->engine);
    MICS_TRY(status);
    if (is_pending(self) && (at->told & RUN_TELL_UNSAVED) != 0) {
        (void)run_saver_await_done(&self->saver, behind, true);
        end_save(self, behind, true);
        if ((at->told & RUN_TELL_POISONED) != 0)
            return MICS_ERR_NUMERIC; // a rank has said which state
        warn_unsaved(self->context, step);
    } else if (is_pending(self)) {
        take_told(self, at->told);
    }
    // A good step came after the save, also where somebody waited for that.
    if (self->prune_due != RUN_NO_STEP && at->result.verdict == MICS_VERDICT_UPDATED) {
        run_saver_prune(&self->saver, self->prune_due);
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
    self->context = context;
    self->prune_due = RUN_NO_STEP;
    self->saver.copies = self->copies;
    return run_saver_open(context, memory, &self->saver);
}

// A run that was killed behind its last step is ended here too.
static run_need needs(void *state, const run_step *step)
{
    const run_saving *self = state;
    if (step->last)
        return RUN_NEEDS_ENDED;
    if (step->begins)
        return RUN_NEEDS_NOTHING;
    if (step->stops)
        return RUN_NEEDS_SAVED;
    return run_is_due(self->context->job->run->checkpoint_every, step->number) ? RUN_NEEDS_SAVING
                                                                               : RUN_NEEDS_NOTHING;
}

// What is newer than the source was not gone back to.
static mics_status rewind_saving(void *state, const run_source *source)
{
    run_saving *self = state;
    if (source->step < self->prune_due)
        self->prune_due = RUN_NO_STEP;
    return MICS_OK;
}

static mics_status close_saving(void *state)
{
    run_saving *self = state;
    if (self->context == NULL)
        return MICS_OK;
    const mics_status status =
        self->context->job->failed == MICS_OK ? run_saving_settle(self) : MICS_OK;
    run_saver_close(&self->saver);
    return status;
}

const run_follower run_saving_follower = {.name = "saving",
                                          .bytes = bytes,
                                          .open = open_saving,
                                          .before_step = before_step,
                                          .end_step = end_step,
                                          .before_update = before_update,
                                          .needs = needs,
                                          .rewind = rewind_saving,
                                          .close = close_saving};
