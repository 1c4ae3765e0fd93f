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
#include "base/clock.h"
#include "mics/log.h"
#include "run/node_memory/alone.h"
#include "run/trainer.h"
#include <stdio.h>

// ---- when a save has ended, on all ranks alike ----

static void tell_saved(const run_trainer *self, int64_t step)
{
    const mics_job *job = self->job;
    char path[RUN_PATH_BYTES];
    if (self->rank->comm->rank != 0 || job->callbacks.checkpoint == NULL)
        return;
    snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, (long long)step);
    job->callbacks.checkpoint(job->callbacks.ctx, step, path);
}

static void end_save(run_trainer *self, run_save *save, bool failed)
{
    const int64_t step = save->step;
    run_saver_end(&self->saver, save, failed);
    if (save == &self->saver.behind)
        self->pending = false;
    if (failed)
        return;
    self->saved = true;
    self->saved_step = self->prune_due = step;
    run_stop_saved(&self->job->stop, step);
    run_node_memory_outdate(self, step);
    run_best_saved(self, step);
    tell_saved(self, step);
}

// One line of all ranks; those that failed have said why.
static void warn_unsaved(const run_trainer *self, int64_t step)
{
    if (self->rank->comm->rank != 0)
        return;
    if (self->saved)
        mics_log(MICS_LOG_WARNING,
                 "step %lld could not be saved; training goes on, and saves when it is due next; "
                 "until then --resume auto goes on from step %lld",
                 (long long)step, (long long)self->saved_step);
    else
        mics_log(MICS_LOG_WARNING,
                 "step %lld could not be saved; training goes on, and saves when it is due next; "
                 "nothing is saved yet",
                 (long long)step);
}

// Waits for a save on all ranks: their files first, then the commit.
static mics_status await_save(run_trainer *self, run_save *save)
{
    run_saver *saver = &self->saver;
    mics_status mine = run_saver_await_written(saver, save);
    mics_status status = mics_engine_agree(self->engine, mine);
    if (status == MICS_OK)
        run_saver_all_written(saver, save);
    mine = run_saver_await_done(saver, save, status != MICS_OK);
    if (status == MICS_OK)
        status = mics_engine_agree(self->engine, mine);
    return status;
}

// The save behind, if there is one. Its failure is no error, but the world's end is one.
static mics_status settle_behind(run_trainer *self)
{
    const int64_t step = self->saver.behind.step;
    const double begin_us = mics_clock_us();
    if (!self->pending)
        return MICS_OK;
    const mics_status status = await_save(self, &self->saver.behind);
    end_save(self, &self->saver.behind, status != MICS_OK);
    if (status != MICS_OK) {
        // A state that is not finite ends the run, on all ranks; no other save that fails does. The
        // question fails where there is no world any more.
        bool poisoned = false;
        MICS_TRY(mics_engine_any(self->engine, status == MICS_ERR_NUMERIC, &poisoned));
        if (poisoned)
            return MICS_ERR_NUMERIC;
        warn_unsaved(self, step);
    }
    const double waited_s = (mics_clock_us() - begin_us) / 1e6;
    if (waited_s > 1 && self->rank->comm->rank == 0)
        run_job_note(self->job,
                     "training waited %.1f s for the save of step %lld; a larger "
                     "run.checkpoint_every would not",
                     waited_s, (long long)step);
    return MICS_OK;
}

// ---- saves that somebody waits for ----

// What some rank cannot write in time goes to node memory first; where savers have not brought it
// there (saver.h), all ranks together do. The last step of a run is for the disk alone: nothing goes
// on from it.
static mics_status keep_if_late(run_trainer *self)
{
    run_saver *saver = &self->saver;
    run_save *direct = &saver->direct;
    bool kept = false, some = false;
    run_saver_await_kept(saver, direct);
    MICS_TRY(mics_engine_any(self->engine, direct->kept, &some));
    if (some) {
        run_stop_kept(&self->job->stop, self->step);
        self->kept = true;
        self->kept_step = self->step;
        self->memory_slot = (self->memory_slot + 1) % MICS_NODE_SLOTS;
        return MICS_OK;
    }
    const bool late = run_share_is_late(self, run_saver_writes_older(saver)) && !direct->lost;
    MICS_TRY(mics_engine_any(self->engine, late && self->step < self->job->run->steps, &some));
    if (!some)
        return MICS_OK;
    MICS_TRY(run_node_memory_stop(self, &kept));
    if (kept && self->rank->comm->rank == 0)
        mics_log(MICS_LOG_INFO, "step %lld is in node memory", (long long)self->step);
    return mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job));
}

// What this rank has not begun by itself (saver.h), it begins now.
static mics_status save_direct(run_trainer *self)
{
    run_saver *saver = &self->saver;
    const bool begun = run_saver_state(saver, &saver->direct) != RUN_SAVE_NONE;
    MICS_TRY(mics_engine_agree(self->engine, begun ? MICS_OK : mics_engine_download(self->engine)));
    if (!begun) {
        run_share_fill_direct(self);
        run_saver_start(saver, &saver->direct);
    }
    const mics_status status = await_save(self, &saver->direct);
    end_save(self, &saver->direct, status != MICS_OK);
    mics_engine_release(self->engine);
    return status;
}

static mics_status save_now(run_trainer *self)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    if (self->saved && self->saved_step == self->step)
        return settle_behind(self);
    MICS_TRY(keep_if_late(self)); // before a save behind the steps is waited for
    MICS_TRY(settle_behind(self));
    if (self->saved && self->saved_step == self->step)
        return MICS_OK;
    if (self->rank->comm->rank == 0 && callbacks->saving != NULL)
        callbacks->saving(callbacks->ctx, self->step);
    MICS_TRY(save_direct(self));
    // A run that resumes from here has none either.
    mics_engine_forget_residual(self->engine);
    return MICS_OK;
}

mics_status run_saving_save(run_trainer *self)
{
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    run_stop_writes(&self->job->stop, true);
    const mics_status status = save_now(self);
    run_stop_writes(&self->job->stop, false);
    MICS_TRY(status);
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}

mics_status run_saving_end(run_trainer *self)
{
    MICS_TRY(run_saving_save(self));
    run_saver_prune(&self->saver, self->step);
    return MICS_OK;
}

mics_status run_saving_settle(run_trainer *self)
{
    if (!self->pending)
        return MICS_OK;
    MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    MICS_TRY(settle_behind(self));
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}

static void withdraw(const run_trainer *self, int64_t step)
{
    const char *dir = self->job->checkpoints_dir;
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_withdraw(self->rank->memory, dir, step) != MICS_OK)
        mics_log(MICS_LOG_WARNING,
                 "%s/step-%08lld holds a state in which replicas differ; remove the folder before "
                 "the run is started again",
                 dir, (long long)step);
    mics_log_demote(before);
}

static void drop_own(run_trainer *self)
{
    run_saver *saver = &self->saver;
    if (run_saver_state(saver, &saver->direct) == RUN_SAVE_NONE)
        return;
    const bool done = run_saver_await_done(saver, &saver->direct, true) == MICS_OK;
    if (saver->late) {
        run_stop_drop_kept(&self->job->stop);
        run_alone_drop(self);
    }
    if (done && self->rank->comm->rank == 0) // it was whole already
        withdraw(self, saver->direct.step);
    run_saver_end(saver, &saver->direct, true);
}

void run_saving_drop(run_trainer *self)
{
    mics_comm *comm = self->rank->comm;
    drop_own(self);
    // Who looks for a state to go back to finds none of it on any node. A failure is that of the next
    // collective, too.
    if (mics_comm_set_timeout(comm, run_job_files_timeout_s(self->job)) == MICS_OK &&
        mics_engine_agree(self->engine, MICS_OK) == MICS_OK)
        (void)mics_comm_set_timeout(comm, self->job->run->comm_timeout_s);
}

// ---- saves behind steps ----

// Where there is no memory for a copy, the ranks wait, and a failure is still no error.
static mics_status save_waiting(run_trainer *self)
{
    self->saver.behind.warns = true;
    MICS_TRY(mics_engine_download(self->engine));
    run_share_describe(self, &self->saver.behind);
    self->pending = true;
    run_saver_start(&self->saver, &self->saver.behind);
    const mics_status status = settle_behind(self);
    mics_engine_release(self->engine);
    return status;
}

// Whether savers have begun by themselves to save the step that was done last: the run is to stop, and
// was asked while it validated.
static mics_status is_being_saved(run_trainer *self, bool *some_out)
{
    run_saver *saver = &self->saver;
    const bool begun = run_saver_state(saver, &saver->direct) != RUN_SAVE_NONE;
    return mics_engine_any(self->engine, begun, some_out);
}

mics_status run_saving_begin(run_trainer *self)
{
    const mics_job_callbacks *callbacks = &self->job->callbacks;
    run_saver *saver = &self->saver;
    bool begun = false;
    MICS_TRY(is_being_saved(self, &begun));
    if (begun) // by some ranks; two saves of a step would wait for each other's files
        return run_saving_save(self);
    if (self->pending || saver->copy == NULL)
        MICS_TRY(mics_comm_set_timeout(self->rank->comm, run_job_files_timeout_s(self->job)));
    MICS_TRY(settle_behind(self));
    if (self->rank->comm->rank == 0 && callbacks->saving != NULL)
        callbacks->saving(callbacks->ctx, self->step);
    mics_engine_forget_residual(self->engine);
    if (saver->copy == NULL) {
        MICS_TRY(save_waiting(self));
        return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
    }
    MICS_TRY(mics_engine_download(self->engine));
    saver->behind.warns = true;
    // Copies of shards are copied at once, as others may ask for them.
    saver->behind.copies = !mics_engine_copies_states(self->job->schedule);
    run_share_describe(self, &saver->behind);
    if (!saver->behind.copies)
        run_share_copy(self);
    mics_engine_release(self->engine);
    self->pending = true;
    run_saver_start(saver, &saver->behind);
    return mics_comm_set_timeout(self->rank->comm, self->job->run->comm_timeout_s);
}

// ---- around a step ----

void run_saving_before_update(void *ctx)
{
    run_trainer *self = ctx;
    const double begin_us = mics_clock_us();
    run_saver_await_copied(&self->saver, &self->saver.behind);
    self->copy_us += mics_clock_us() - begin_us;
}

void run_saving_enter_step(run_trainer *self)
{
    const run_save *behind = &self->saver.behind;
    const run_save_state state = run_saver_state(&self->saver, behind);
    if (self->pending && state == RUN_SAVE_FAILED)
        mics_engine_tell(self->engine,
                         RUN_TELL_UNSAVED |
                             (behind->status == MICS_ERR_NUMERIC ? RUN_TELL_POISONED : 0));
    if (self->pending && state == RUN_SAVE_DONE && self->rank->comm->rank == 0)
        mics_engine_tell(self->engine, RUN_TELL_SAVED);
    if (self->pending && state < RUN_SAVE_WAITING)
        mics_engine_tell(self->engine, RUN_TELL_WRITES);
    if (run_stop_is_asked(&self->job->stop))
        (void)mics_engine_hold(self->engine);
    run_saver_in_step(&self->saver, true);
}

// What ranks have said of the save behind, when no rank has failed. It goes on where a rank is not done
// with its part, though rank 0 may have found the file and committed: the rank's thread would take the
// next save for this one.
static void hear_of_behind(run_trainer *self)
{
    if ((self->newest.told & RUN_TELL_WRITES) != 0)
        return;
    if ((self->newest.told & RUN_TELL_SAVED) != 0)
        end_save(self, &self->saver.behind, false);
    else
        run_saver_all_written(&self->saver, &self->saver.behind);
}

mics_status run_saving_leave_step(run_trainer *self, mics_status status)
{
    run_save *behind = &self->saver.behind;
    const int64_t step = behind->step;
    run_saver_in_step(&self->saver, false);
    mics_engine_end_word(
        self->engine); // not before: the saver would take this step's state for the last's
    MICS_TRY(status);
    if (self->pending && (self->newest.told & RUN_TELL_UNSAVED) != 0) {
        (void)run_saver_await_done(&self->saver, behind, true);
        end_save(self, behind, true);
        if ((self->newest.told & RUN_TELL_POISONED) != 0)
            return MICS_ERR_NUMERIC; // a rank has said which state
        warn_unsaved(self, step);
    } else if (self->pending) {
        hear_of_behind(self);
    }
    // A good step came after the save, also where somebody waited for that.
    if (self->prune_due > 0 && self->newest.verdict == MICS_VERDICT_UPDATED) {
        run_saver_prune(&self->saver, self->prune_due);
        self->prune_due = 0;
    }
    return MICS_OK;
}
