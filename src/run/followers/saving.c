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
#include "mics/log.h"
#include <stdio.h>

static run_save *save_of(run_saving *self, int which)
{
    return &self->saver.saves[which];
}

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
    if (failed)
        return;
    self->prune_due = step;
    run_memory_tier.prune(&self->saver, step);
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
    mics_engine *engine = self->context->engine;
    mics_status status = mics_engine_agree(engine, run_saver_await_written(save));
    if (status == MICS_OK)
        atomic_store(&save->all_written, true);
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

// ---- copies in node memory ----

static void count_copy(run_saving *self)
{
    self->saver.slot = (self->saver.slot + 1) % MICS_NODE_SLOTS;
    run_progress_keep(self->context->progress);
}

// *kept_out: whether it counts, alike on all ranks.
static mics_status make_copy(run_saving *self, bool to_stop, bool *kept_out)
{
    const run_context *context = self->context;
    run_save *copy = save_of(self, RUN_COPY);
    MICS_TRY(run_await_files(context));
    copy->to_stop = to_stop;
    const mics_status status = run_saver_run(copy, mics_engine_download(context->engine));
    run_saver_end(copy, status != MICS_OK);
    *kept_out = status == MICS_OK;
    MICS_TRY(status == MICS_ERR_PEER ? MICS_OK : status); // some rank could not
    if (*kept_out)
        count_copy(self);
    // A run that goes on from here has none either.
    mics_engine_forget_residual(context->engine);
    return run_await_collectives(context);
}

// ---- saves that somebody waits for ----

// A state that some rank cannot write to disk before the deadline goes to node memory first. Where the
// savers have made no copy in the middle of the step, all ranks make one here. The last step of a run
// goes to disk only: no run resumes from it.
static mics_status copy_before_deadline(run_saving *self)
{
    const run_context *context = self->context;
    run_save *copy = save_of(self, RUN_COPY);
    bool some = false;
    const mics_status mine = run_saver_await_done(copy, false);
    const bool kept = run_saver_state(copy) == RUN_SAVE_DONE;
    run_saver_end(copy, !kept);
    MICS_TRY(mics_engine_any(context->engine, kept, &some));
    if (some) {
        count_copy(self);
        return MICS_OK;
    }
    const bool needed = run_saver_misses_deadline(&self->saver) && mine != MICS_ERR_PEER;
    const bool goes_on = context->progress->step < context->job->run->steps;
    MICS_TRY(mics_engine_any(context->engine, needed && goes_on, &some));
    if (!some)
        return MICS_OK;
    MICS_TRY(make_copy(self, true, &some));
    return run_await_files(context);
}

// From the engine's memory, which is released once the save has ended. What this rank's saver has not
// begun, it begins now.
static mics_status start_from_engine(run_saving *self, run_save *save)
{
    mics_engine *engine = self->context->engine;
    const bool begun = run_saver_state(save) != RUN_SAVE_IDLE;
    MICS_TRY(mics_engine_agree(engine, begun ? MICS_OK : mics_engine_download(engine)));
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
    mics_engine_release(self->context->engine);
    return status;
}

mics_status run_saving_quarantine(run_saving *self)
{
    run_save *save = save_of(self, RUN_QUARANTINE);
    MICS_TRY(start_from_engine(self, save));
    const mics_status status = await_save(self, save);
    run_saver_end(save, status != MICS_OK);
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
        return settle_background(self);
    MICS_TRY(copy_before_deadline(self)); // before the background save is waited for
    MICS_TRY(settle_background(self));
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
    MICS_TRY(settle_background(self));
    return run_await_collectives(self->context);
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
    mics_engine *engine = self->context->engine;
    run_save *save = save_of(self, RUN_BACKGROUND);
    MICS_TRY(mics_engine_download(engine));
    save->stages = self->saver.staging != NULL;
    run_progress_begin_save(self->context->progress);
    run_saver_start(save);
    const mics_status status = self->saver.staging == NULL ? settle_background(self) : MICS_OK;
    mics_engine_release(engine);
    return status;
}

static mics_status begin(run_saving *self)
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
        return RUN_SENDS_UNSAVED | (save->status == MICS_ERR_NUMERIC ? RUN_SENDS_POISONED : 0);
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
        warn_unsaved(self->context, step);
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
    const size_t node_bytes = context->job->schedule->ledger.bytes[MICS_MEM_NODE];
    self->context = context;
    self->prune_due = RUN_NO_STEP;
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
    return run_is_due(self->context->job->run->memory_checkpoint_every, step->number) &&
           !step->begins;
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
    bool kept = false;
    return copy_is_due(state, step) && !step->last && !step->stops ? make_copy(state, false, &kept)
                                                                   : MICS_OK;
}

// Checkpoints that are newer than the source were not gone back to; the next copy must not take the
// place of a source in node memory.
static mics_status rewind_saving(void *state, const run_source *source)
{
    run_saving *self = state;
    if (source->step < self->prune_due)
        self->prune_due = RUN_NO_STEP;
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
