// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Decisions are taken alike on all ranks: by validation losses, which they share, and by what rank 0
// has read of metrics.jsonl.
#include "best.h"
#include "base/file.h"
#include "mics/log.h"
#include "run/trainer.h"
#include <math.h>

static bool is_used(const mics_run *run)
{
    return run->keep_best || run->stop_after_no_improvement > 0;
}

mics_status run_best_check(const mics_run *run)
{
    const char *key = run->keep_best ? "run.keep_best" : "run.stop_after_no_improvement";
    if (!is_used(run))
        return MICS_OK;
    if (run->validation_batches == 0)
        return mics_json_fail(
            run->json, key, MICS_ERR_INVALID,
            "run.validation_batches is 0, so no loss says which step is the best; "
            "leave that key out");
    if (run->validate_every == 0)
        return mics_json_fail(run->json, key, MICS_ERR_INVALID,
                              "compares validations during training, and run.validate_every is 0; "
                              "give that as a number of steps");
    return MICS_OK;
}

// ---- counting ----

void run_best_count(run_best *best, const mics_run *run, int64_t step, double loss)
{
    const bool due = step > 0 && (step % run->validate_every == 0 || step == run->steps);
    if (!due || step == best->newest)
        return;
    best->newest = step;
    best->since++;
    if (isnan(loss) || (best->step > 0 && !(loss < best->loss)))
        return;
    best->step = step;
    best->loss = loss;
    best->since = 0;
}

typedef struct history {
    const mics_run *run;
    run_best *best;
} history;

static void count_line(void *ctx, int64_t step, double loss)
{
    const history *self = ctx;
    run_best_count(self->best, self->run, step, loss);
}

// ---- what was found so far ----

static void read_history(run_trainer *self)
{
    char *path = NULL;
    history lines = {.run = self->job->run, .best = &self->best};
    const bool before = mics_log_demote(true);
    mics_status status =
        mics_file_join(self->rank->memory, self->job->run->out, "metrics.jsonl", &path);
    if (status == MICS_OK)
        status = mics_metrics_validations(self->rank->memory, path, self->step, count_line, &lines);
    if (status != MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s/metrics.jsonl: validations before step %lld do not count",
                 self->job->run->out, (long long)self->step);
    mics_log_demote(before);
    mics_free(self->rank->memory, path);
}

mics_status run_best_load(run_trainer *self)
{
    if (!is_used(self->job->run) || self->best.known)
        return MICS_OK;
    self->best = (run_best){.known = true};
    if (self->rank->comm->rank == 0)
        read_history(self);
    MICS_TRY(mics_comm_broadcast(self->rank->comm, 0, &self->best, sizeof self->best));
    if (self->job->run->keep_best && self->rank->comm->rank == 0)
        run_best_name_again(self);
    return MICS_OK;
}

bool run_best_ended(const run_trainer *self)
{
    const int64_t patience = self->job->run->stop_after_no_improvement;
    return patience > 0 && self->best.known && self->best.since >= patience;
}

// ---- after a validation ----

static bool is_saved(const run_trainer *self, int64_t step)
{
    return (self->saved && self->saved_step == step) ||
           (self->pending && self->saver.behind.step == step);
}

static mics_status save(run_trainer *self, int64_t step, bool ends)
{
    if (!ends && is_saved(self, step)) {
        if (!self->pending)
            run_best_saved(self, step);
        return MICS_OK;
    }
    MICS_TRY(run_guard_check(self, step, true));
    if (self->step != step) // it went back, and trains up to here again
        return MICS_OK;
    return ends ? run_saving_end(self) : run_saving_begin(self);
}

mics_status run_best_follow(run_trainer *self, int64_t step)
{
    const mics_run *run = self->job->run;
    run_best *best = &self->best;
    if (!is_used(run))
        return MICS_OK;
    MICS_TRY(run_best_load(self));
    run_best_count(best, run, step, self->validation_last);
    const bool ends = run_best_ended(self) && step < run->steps;
    if (ends || (run->keep_best && best->step == step))
        MICS_TRY(save(self, step, ends));
    if (ends && self->step == step && self->rank->comm->rank == 0)
        run_reports_stop(&self->reports, step, best->step, best->step > 0 ? best->loss : NAN);
    return MICS_OK;
}

// What a run begins with from another one's folder is no step of this run, nor in its checkpoints.
mics_status run_best_begin(run_trainer *self)
{
    run_best counted = self->best;
    if (!is_used(self->job->run) || !(self->begun || self->job->resumes_newest))
        return MICS_OK;
    run_best_count(&counted, self->job->run, self->step, self->validation_last);
    return counted.newest != self->best.newest ? run_best_follow(self, self->step) : MICS_OK;
}
