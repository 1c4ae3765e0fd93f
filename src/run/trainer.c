// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Training on one rank: read a batch, step the engine, judge what came of it, follow up. All ranks
// take every decision here alike: what they decide by is the run, the step's number, or something
// that a collective told them.
#include "trainer.h"
#include "base/clock.h"
#include "mics/log.h"

static mics_status begin(run_trainer *self);
static void begin_step(run_trainer *self);
static void before_attempt(run_trainer *self);
static mics_status end_attempt(run_trainer *self, mics_status status);
static mics_status complete_step(run_trainer *self);
static mics_status follow(run_trainer *self);
static mics_status recover(run_trainer *self, int64_t step, const mics_divergence *found);
static mics_status stop(run_trainer *self);
static mics_status end(run_trainer *self, mics_status status);

mics_status run_trainer_train(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    run_trainer *self = run_trainer_of(job, rank);
    const run_progress *progress = &self->progress;
    run_step *step = &self->step;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(begin(self)); // what was due after the last step and was not done
    while (progress->step < job->train_until && !run_best_stops_early(&self->followers.best)) {
        run_action action = RUN_RECHECK;
        begin_step(self);
        const int64_t first = run_job_position(job, step->number - 1).sample;
        const mics_batch_source batch = run_batches_at(&self->batches, &job->train_samples, first,
                                                       first + job->run->global_batch);
        while (action == RUN_RECHECK) { // twice at most
            before_attempt(self);
            MICS_TRY_OUT(
                end_attempt(self, mics_engine_step(self->context.engine, step->number,
                                                   (float)step->lr, &batch, &step->result)));
            MICS_TRY_OUT(run_judge_step(&self->judge, step->number, &step->result, step->impossible,
                                        &action));
        }
        if (action == RUN_GO_BACK) // replicas differ in the state before this step
            MICS_TRY_OUT(recover(self, step->number - 1, &self->judge.found));
        if (action == RUN_ACCEPT) {
            MICS_TRY_OUT(complete_step(self));
            MICS_TRY_OUT(follow(self));
        }
        if ((action == RUN_HOLD || step->stops) && progress->step != job->run->steps)
            MICS_TRY_OUT(stop(self)); // a finished run needs none
    } // RUN_RETAKE: nothing was trained, and the loop takes the same step again
out:
    return end(self, status);
}

// ---- a step ----

// Calls an entry of all followers that have it.
#define FOR_EACH_FOLLOWER(row, entry)                                                              \
    for (const run_follower_row *row = run_follower_rows; row < run_follower_rows + RUN_FOLLOWERS; \
         row++)                                                                                    \
        if (row->follower->entry != NULL)

static void *state_of(run_trainer *self, const run_follower_row *row)
{
    return run_follower_state(&self->followers, row);
}

static void begin_step(run_trainer *self)
{
    const mics_job_callbacks *callbacks = &self->context.job->callbacks;
    const mics_run *run = self->context.job->run;
    const run_step before = self->step;
    self->step = (run_step){.number = self->progress.step + 1,
                            .lr = mics_run_lr_at(run, self->progress.step + 1),
                            .last = self->progress.step + 1 == run->steps,
                            .save_us = before.behind_us};
    if (before.number == self->step.number) { // it is taken again
        self->step.save_us += before.save_us;
        self->step.copy_us = before.copy_us;
    }
    // One process may be told to stop, and not the next.
    if (run_is_first_local(&self->context) && callbacks->should_stop != NULL &&
        callbacks->should_stop(callbacks->ctx))
        mics_engine_tell(self->context.engine, RUN_SENDS_STOP);
}

static void before_attempt(run_trainer *self)
{
    const mics_step_limits limits = run_judge_limits(&self->judge);
    mics_engine_set_limits(self->context.engine, &limits);
    FOR_EACH_FOLLOWER(row, before_step)
        row->follower->before_step(state_of(self, row));
}

void run_trainer_before_update(void *ctx)
{
    run_trainer *self = ctx;
    const double begin_us = mics_clock_us();
    FOR_EACH_FOLLOWER(row, before_update)
        row->follower->before_update(state_of(self, row));
    self->step.copy_us += mics_clock_us() - begin_us;
}

void run_trainer_saved(void *ctx, int64_t step)
{
    run_trainer *self = ctx;
    FOR_EACH_FOLLOWER(row, saved)
        row->follower->saved(state_of(self, row), step);
}

// MICS_ERR_NUMERIC is left to the judge.
static mics_status end_attempt(run_trainer *self, mics_status status)
{
    self->step.told |= self->step.result.told;
    self->step.stops = (self->step.told & RUN_SENDS_STOP) != 0;
    self->step.impossible = status == MICS_ERR_NUMERIC;
    if (self->step.impossible)
        status = MICS_OK;
    FOR_EACH_FOLLOWER(row, end_step)
        status = row->follower->end_step(state_of(self, row), &self->step, status);
    return status;
}

// What a follower needs of the state behind the step.
static run_need need_of(run_trainer *self, const run_follower_row *row)
{
    return row->follower->needs != NULL ? row->follower->needs(state_of(self, row), &self->step)
                                        : RUN_NEEDS_NOTHING;
}

// Several islands meet where the run or a phase ends, and know all of a step with which a call ends.
static mics_status complete_for(run_trainer *self, run_need need)
{
    const mics_job *job = self->context.job;
    const bool several = run_job_islands(job) > 1;
    const int64_t step = self->step.number;
    self->step.meets = several && step == mics_run_phase_end(job->run);
    if (self->step.meets)
        return mics_engine_meet(self->context.engine);
    return need > RUN_NEEDS_NOTHING || (several && step == job->train_until)
               ? mics_engine_complete(self->context.engine)
               : MICS_OK;
}

// A step is done. If its state is read after it, it is completed first, so that the time and bytes of
// that are in its metrics. A step lasts from the end of the one before to its own, so that steps
// leave no time between them; the engine's own figure begins with its list.
static mics_status complete_step(run_trainer *self)
{
    run_step *step = &self->step;
    const double entered_us = mics_clock_us(), ended_us = self->begin_us;
    run_need need = RUN_NEEDS_NOTHING;
    run_progress_step(&self->progress, step->number);
    FOR_EACH_FOLLOWER(row, before_complete)
        MICS_TRY(row->follower->before_complete(state_of(self, row), step));
    const double complete_us = mics_clock_us(), copy_us = step->copy_us;
    FOR_EACH_FOLLOWER(row, needs) {
        const run_need own = need_of(self, row);
        need = own > need ? own : need;
    }
    MICS_TRY(complete_for(self, need));
    step->complete_us = mics_clock_us() - complete_us - (step->copy_us - copy_us);
    step->completions = mics_engine_take_completions(self->context.engine);
    self->begin_us = mics_clock_us();
    step->taken_us = self->begin_us - ended_us - (complete_us - entered_us) - step->copy_us;
    atomic_store(&self->context.job->stop.step_s, step->taken_us / 1e6);
    return MICS_OK;
}

// ---- after a step ----

static mics_status compare(run_trainer *self)
{
    mics_divergence found;
    MICS_TRY(run_replicas_compare(&self->followers.replicas, &found));
    if (found.found)
        MICS_TRY(recover(self, self->progress.step, &found));
    // A state that was repaired was compared again; one that was gone back to is another step's.
    self->step.compared = self->progress.step == self->step.number;
    return MICS_OK;
}

// A run that is to stop has its state where it is resumed from, also where the disk is full.
static mics_status kept_or(const run_trainer *self, run_need need, mics_status status)
{
    const bool kept = self->progress.kept == self->progress.step;
    return status == MICS_ERR_FULL && need == RUN_NEEDS_SAVED && kept ? MICS_OK : status;
}

// Provides what a follower needs, unless the run goes back for it.
static mics_status provide(run_trainer *self, run_need need)
{
    if (need >= RUN_NEEDS_AGREED && !self->step.compared)
        MICS_TRY(compare(self));
    if (need < RUN_NEEDS_SAVING || self->progress.step != self->step.number)
        return MICS_OK;
    const double begin_us = mics_clock_us();
    MICS_TRY(kept_or(self, need, run_saving_provide(&self->followers.saving, need)));
    self->step.behind_us += mics_clock_us() - begin_us;
    return MICS_OK;
}

// What is due after a step. Its time is neither that step's nor the next one's.
static mics_status follow(run_trainer *self)
{
    const double begin_us = mics_clock_us();
    for (const run_follower_row *row = run_follower_rows;
         row < run_follower_rows + RUN_FOLLOWERS && self->progress.step == self->step.number;
         row++) {
        const run_need need = need_of(self, row);
        MICS_TRY(provide(self, need));
        if (row->follower->after_step == NULL || self->progress.step != self->step.number)
            continue;
        // What islands agreed on takes the place of the state, while that is evaluated.
        run_saving_allow_reading(&self->followers.saving,
                                 need == RUN_NEEDS_STATE &&
                                     run_job_islands(self->context.job) == 1);
        const mics_status status = row->follower->after_step(state_of(self, row), &self->step);
        run_saving_allow_reading(&self->followers.saving, false);
        MICS_TRY(status);
    }
    if (self->progress.step == self->step.number) // else it begins where the run went back to
        self->begin_us += mics_clock_us() - begin_us - self->step.reported_us;
    return MICS_OK;
}

static mics_status begin(run_trainer *self)
{
    mics_log_release(false, -1);
    self->step = (run_step){.number = self->progress.step,
                            .begins = true,
                            .first = !self->begun,
                            .last = self->progress.step == self->context.job->run->steps};
    FOR_EACH_FOLLOWER(row, begin)
        MICS_TRY(row->follower->begin(state_of(self, row)));
    MICS_TRY(follow(self));
    self->begun = true;
    self->begin_us = mics_clock_us();
    return MICS_OK;
}

// ---- going back, and stopping ----

static mics_status rewind_to_agreed(run_trainer *self, const char *what)
{
    run_source source;
    MICS_TRY(run_rewind_load(&self->context, &self->scaler, &self->judge.recent, &source));
    if (source.step < self->context.job->run->phase_begin)
        return run_rewind_fail(&self->context, what,
                               "it would go back to a phase before; start it again");
    run_progress_go_back(&self->progress, source.step);
    FOR_EACH_FOLLOWER(row, rewind)
        MICS_TRY(row->follower->rewind(state_of(self, row), &source));
    self->begin_us = mics_clock_us();
    if (run_is_rank_0(&self->context))
        mics_log(MICS_LOG_WARNING, "%s; the run goes back to step %lld (%s)", what,
                 (long long)source.step,
                 source.in_memory         ? "in node memory"
                 : source.path[0] != '\0' ? source.path
                                          : "what it began with");
    return MICS_OK;
}

// Goes on after replicas were found to differ in the state of `step`, as run.on_divergence says: by
// repair, or from an earlier state. The state is good then, and progress->step names it.
static mics_status recover(run_trainer *self, int64_t step, const mics_divergence *found)
{
    run_replicas *replicas = &self->followers.replicas;
    char what[RUN_REPLICAS_TEXT_BYTES];
    bool done = false;
    MICS_TRY(run_replicas_describe(replicas, step, found, what));
    run_saving_drop(&self->followers.saving);             // of this state
    MICS_TRY(run_saving_settle(&self->followers.saving)); // what is copied may be written over
    replicas->seen.count++;
    const run_action action = run_guard_divergence(&self->judge.rules, &replicas->seen,
                                                   self->progress.agreed, found, &done);
    if (action == RUN_GIVE_UP)
        return run_rewind_fail(&self->context, what,
                               done ? "the same happens again and again, so that machine is "
                                      "probably bad: leave it out and start again"
                                    : "run.on_divergence is \"stop\"");
    replicas->seen.newest = *found;
    replicas->seen.diverged_step = step;
    run_saver_changes(&self->followers.saving.saver, true);
    if (action == RUN_REPAIR)
        MICS_TRY(run_replicas_repair(replicas, what, &done));
    if (!done && run_job_islands(self->context.job) > 1)
        return run_rewind_fail(&self->context, what,
                               "with local steps (outer) a run does not go back by itself");
    if (!done)
        MICS_TRY(rewind_to_agreed(self, what));
    run_saver_changes(&self->followers.saving.saver, false);
    return MICS_OK;
}

// The last step that was done is saved, by all, even if the run went back to it. Nobody may change a
// state that is being written, so replicas that differ end the run.
static mics_status stop(run_trainer *self)
{
    mics_divergence found = {.found = false};
    char what[RUN_REPLICAS_TEXT_BYTES];
    if (self->step.result.verdict == MICS_VERDICT_HELD)
        MICS_TRY(mics_engine_compare(self->context.engine, &found));
    if (found.found) {
        MICS_TRY(
            run_replicas_describe(&self->followers.replicas, self->progress.step, &found, what));
        run_saving_drop(&self->followers.saving);
        return run_rewind_fail(&self->context, what, "the run is to stop, and does not save that");
    }
    MICS_TRY(kept_or(self, RUN_NEEDS_SAVED,
                     run_saving_provide(&self->followers.saving, RUN_NEEDS_SAVED)));
    // Who could not read has said so.
    return (self->step.told & RUN_SENDS_UNREADABLE) != 0 ? MICS_ERR_IO : MICS_ERR_INTERRUPTED;
}

// ---- what ranks are asked for ----

run_trainer *run_trainer_of(mics_job *job, const run_rank *rank)
{
    return &job->trainers[rank->comm->rank - job->world->first];
}

// The largest of all ranks, by tag and in total.
static mics_status measure_memory(run_trainer *self)
{
    mics_memory_stats stats;
    mics_memory_stats_get(self->context.rank->memory, &stats);
    for (int tag = 0; tag < MICS_MEM_TAGS; tag++)
        self->peak_bytes[tag] = (int64_t)stats.peak[tag];
    self->peak_bytes[MICS_MEM_TAGS] = (int64_t)stats.total_peak;
    return run_rank_max(self->context.rank, self->peak_bytes, MICS_MEM_TAGS + 1);
}

static mics_status end(run_trainer *self, mics_status status)
{
    // Numbers of a step are those of an island: others may not know.
    const bool found = status == MICS_ERR_NUMERIC && run_job_islands(self->context.job) == 1;
    if (found) // what is being saved was good
        (void)run_saving_settle(&self->followers.saving);
    if (status == MICS_OK || status == MICS_ERR_INTERRUPTED)
        MICS_TRY(measure_memory(self));
    // Every rank was told to stop, or found the same numbers, so nobody waits for another.
    self->context.rank->agreed =
        status == MICS_ERR_INTERRUPTED || found || (self->step.told & RUN_SENDS_UNREADABLE) != 0;
    return status;
}

mics_status run_trainer_evaluate(void *ctx, run_rank *rank)
{
    run_trainer *self = run_trainer_of(ctx, rank);
    mics_log_release(false, -1);
    return run_validation_find_loss(&self->followers.validation, &self->evaluated);
}

static mics_status save(run_trainer *self)
{
    MICS_TRY(compare(self));
    if (self->progress.step != self->context.job->train_until) // it went back
        MICS_TRY(run_trainer_train(self->context.job, self->context.rank));
    return run_saving_provide(&self->followers.saving, RUN_NEEDS_SAVED);
}

mics_status run_trainer_save(void *ctx, run_rank *rank)
{
    run_trainer *self = run_trainer_of(ctx, rank);
    mics_log_release(false, -1);
    const mics_status status = save(self);
    rank->agreed = status == MICS_ERR_INTERRUPTED || status == MICS_ERR_NUMERIC;
    return status;
}

mics_status run_trainer_write(void *ctx, run_rank *rank)
{
    mics_job *job = ctx;
    mics_status status = MICS_OK;
    MICS_TRY(mics_comm_set_timeout(rank->comm, run_job_files_timeout_s(job)));
    if (rank->comm->rank == 0)
        status = job->write(job, job->write_ctx);
    MICS_TRY(run_rank_agree(rank, status));
    return mics_comm_set_timeout(rank->comm, job->run->comm_timeout_s);
}
