// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Decisions are taken alike on all ranks: by validation losses, which they share, and by what rank 0
// has read of metrics.jsonl.
#include "best.h"
#include "base/file.h"
#include "mics/core/checkpoint.h"
#include "mics/log.h"
#include <math.h>
#include <stdio.h>

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

void run_best_count(run_best_record *best, const mics_run *run, int64_t step, double loss)
{
    const bool due = step > 0 && (step % run->validate_every == 0 || step == run->steps);
    if (!due || step == best->newest)
        return;
    const bool same = run->outer.every > 0 && loss == best->last; // islands have not met since
    best->newest = step;
    best->last = loss;
    best->since += !same;
    if (isnan(loss) || (best->step > 0 && !(loss < best->loss)))
        return;
    best->step = step;
    best->loss = loss;
    best->since = 0;
}

typedef struct history {
    const mics_run *run;
    run_best_record *best;
} history;

static void count_line(void *ctx, int64_t step, double loss)
{
    const history *self = ctx;
    run_best_count(self->best, self->run, step, loss);
}

// ---- the name of the best checkpoint ----

static bool is_there(const run_context *context, int64_t step)
{
    char path[RUN_PATH_BYTES];
    mics_checkpoint *checkpoint = NULL;
    snprintf(path, sizeof path, "%s/step-%08lld", context->job->checkpoints_dir, (long long)step);
    const bool muted = mics_log_mute(true);
    const bool there = mics_checkpoint_open(context->rank->memory, path, &checkpoint) == MICS_OK;
    mics_log_mute(muted);
    mics_checkpoint_close(checkpoint);
    return there;
}

static void name(const run_context *context, int64_t step)
{
    const bool before = mics_log_demote(true);
    if (mics_checkpoint_name_best(context->rank->memory, context->job->checkpoints_dir, step) !=
        MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s/best does not name the best checkpoint; training goes on",
                 context->job->checkpoints_dir);
    mics_log_demote(before);
}

// A run that begins at an older step than the one that is named knows nothing of that any more.
static void name_again(const run_best *self)
{
    const run_context *context = self->context;
    int64_t named = -1;
    const int64_t best = self->found.step > 0 ? self->found.step : -1;
    const bool before = mics_log_demote(true);
    (void)mics_checkpoint_best(context->rank->memory, context->job->checkpoints_dir, &named);
    mics_log_demote(before);
    if (named == best)
        return;
    if (best > 0 && is_there(context, best))
        name(context, best);
    else if (named > context->progress->step)
        name(context, -1);
}

// The checkpoint of the best is whole.
static void saved(void *state, int64_t step)
{
    const run_best *self = state;
    if (self->context->job->run->keep_best && self->found.step == step &&
        run_is_rank_0(self->context))
        name(self->context, step);
}

// ---- what was found so far ----

static void read_history(run_best *self)
{
    const run_context *context = self->context;
    const mics_run *run = context->job->run;
    char *path = NULL;
    history lines = {.run = run, .best = &self->found};
    const bool before = mics_log_demote(true);
    mics_status status = mics_file_join(context->rank->memory, run->out, "metrics.jsonl", &path);
    if (status == MICS_OK)
        status = mics_metrics_validations(context->rank->memory, path, context->progress->step,
                                          count_line, &lines);
    if (status != MICS_OK)
        mics_log(MICS_LOG_WARNING, "%s/metrics.jsonl: validations before step %lld do not count",
                 run->out, (long long)context->progress->step);
    mics_log_demote(before);
    mics_free(context->rank->memory, path);
}

static mics_status load(void *state)
{
    run_best *self = state;
    const run_context *context = self->context;
    if (!is_used(context->job->run) || self->known)
        return MICS_OK;
    self->known = true;
    self->found = (run_best_record){.newest = 0};
    if (run_is_rank_0(context))
        read_history(self);
    MICS_TRY(mics_comm_broadcast(context->rank->comm, 0, &self->found, sizeof self->found));
    if (context->job->run->keep_best && run_is_rank_0(context))
        name_again(self);
    return MICS_OK;
}

bool run_best_stops_early(const run_best *self)
{
    const int64_t patience = self->context->job->run->stop_after_no_improvement;
    return patience > 0 && self->found.since >= patience;
}

// ---- the follower ----

static mics_status open_best(void *state, const run_context *context, void *memory)
{
    run_best *self = state;
    (void)memory;
    *self = (run_best){.context = context, .counted = RUN_NO_STEP};
    return MICS_OK;
}

static bool ends(const run_best *self, const run_step *step)
{
    return run_best_stops_early(self) && step->number < self->context->job->run->steps;
}

// What a run begins with from another one's folder is no step of this run, nor in its checkpoints;
// what it knows already, it has dealt with.
static bool counts(const run_best *self, const run_step *step)
{
    const mics_job *job = self->context->job;
    run_best_record counted = self->found;
    if (!is_used(job->run) || !step->validated)
        return false;
    if (!step->begins)
        return true;
    run_best_count(&counted, job->run, step->number, step->validation_loss);
    return (!step->first || job->resumes_newest) && counted.newest != self->found.newest;
}

static run_need needs(void *state, const run_step *step)
{
    run_best *self = state;
    const run_context *context = self->context;
    if (!counts(self, step))
        return RUN_NEEDS_NOTHING;
    run_best_count(&self->found, context->job->run, step->number, step->validation_loss);
    self->counted = step->number;
    if (ends(self, step))
        return RUN_NEEDS_ENDED;
    if (self->found.step != step->number || !context->job->run->keep_best)
        return RUN_NEEDS_NOTHING;
    return run_progress_is_saved(context->progress) ? RUN_NEEDS_NOTHING : RUN_NEEDS_SAVING;
}

static mics_status after_step(void *state, run_step *step)
{
    run_best *self = state;
    const run_best_record *found = &self->found;
    if (self->counted != step->number || !step->validated)
        return MICS_OK;
    if (self->context->progress->saved == step->number)
        saved(self, step->number);
    if (ends(self, step))
        run_reports_stop(self->context->reports, step->number, found->step,
                         found->step > 0 ? found->loss : NAN);
    return MICS_OK;
}

// What the lines say that are left.
static mics_status rewind_best(void *state, const run_source *source)
{
    (void)source;
    ((run_best *)state)->known = false;
    return load(state);
}

const run_follower run_best_follower = {.name = "best",
                                        .open = open_best,
                                        .begin = load,
                                        .needs = needs,
                                        .after_step = after_step,
                                        .saved = saved,
                                        .rewind = rewind_best};
