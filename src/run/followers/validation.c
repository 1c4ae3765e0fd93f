// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "validation.h"
#include "mics/log.h"
#include "run/followers/metrics.h"
#include "run/followers/saving.h"
#include <math.h>
#include <string.h>

// Of an evaluation.
typedef struct evaluated {
    double sum, counted; // loss of all that counts, and how much that is
    double sums[MICS_PREFERENCE_SUMS];
} evaluated;

static void add(evaluated *all, const evaluated *part)
{
    all->sum += part->sum;
    all->counted += part->counted;
    for (int i = 0; i < MICS_PREFERENCE_SUMS; i++)
        all->sums[i] += part->sums[i];
}

// Each island has evaluated sequences of its own.
static mics_status add_islands(const run_context *context, evaluated *found)
{
    const mics_mesh *mesh = &context->job->schedule->spec.mesh;
    run_rank *rank = context->rank;
    evaluated *all = NULL, sum = {.sum = 0};
    if (mesh->islands == 1)
        return MICS_OK;
    MICS_TRY(MICS_NEW(rank->memory, rank->comm->ranks, &all));
    all[rank->comm->rank] = *found;
    const mics_status status = run_rank_gather(rank, all, sizeof *all);
    for (int32_t island = 0; island < mesh->islands; island++)
        add(&sum, &all[island * mesh->ranks]);
    mics_free(rank->memory, all);
    *found = sum;
    return status;
}

static mics_status evaluate(run_validation *self, evaluated *found)
{
    const run_context *context = self->context;
    const mics_run *run = context->job->run;
    const int64_t end = run->validation_batches * run->global_batch;
    const int64_t samples = run->micro_batch * run_job_data_ranks(context->job);
    for (int64_t first = 0; first < end; first += samples) {
        mics_step_result result;
        const mics_batch_source source =
            run_batches_at(&self->batches, &context->job->validation_samples, first, end);
        MICS_TRY(mics_engine_eval(context->engine, &source, &result));
        evaluated batch = {.sum = result.counted > 0 ? result.loss * (double)result.counted : 0,
                           .counted = (double)result.counted};
        memcpy(batch.sums, result.preference_sums, sizeof batch.sums);
        add(found, &batch);
    }
    return add_islands(context, found);
}

mics_status run_validation_find_loss(run_validation *self, double *loss_out)
{
    const run_context *context = self->context;
    evaluated found = {.sum = 0};
    MICS_TRY(mics_engine_swap_agreed(context->engine)); // what islands agreed on is evaluated
    MICS_TRY(evaluate(self, &found));
    MICS_TRY(mics_engine_swap_agreed(context->engine));
    bool unreadable = false; // on any rank, which has said why
    MICS_TRY(mics_engine_any(context->engine, self->batches.gave_up, &unreadable));
    if (unreadable)
        return MICS_ERR_IO;
    if (found.counted == 0)
        return mics_fail(MICS_ERR_INVALID, "data.validation: no token counts: %s",
                         context->job->chats != NULL
                             ? "no answer begins within data.sequence_length"
                             : "all are special tokens, which are not hidden");
    *loss_out = found.sum / found.counted;
    run_metrics_fill_pairs(context->job->run, found.sums, found.counted, &self->pairs_last);
    return MICS_OK;
}

bool run_validation_is_left_out(const mics_job *job, int64_t step)
{
    int64_t newest = RUN_NO_STEP;
    return job->run->validation_batches > 0 &&
           run_reports_newest(job->memory, job->run, "metrics.jsonl", "validation_loss", &newest) &&
           newest < step;
}

// ---- the follower ----

static mics_status open_validation(void *state, const run_context *context, void *memory)
{
    run_validation *self = state;
    (void)memory;
    *self = (run_validation){.context = context, .loss_first = NAN, .loss_last = NAN};
    return run_batches_open(&self->batches, context);
}

// Also where a run goes on behind a step with which it stopped before validating it.
static bool is_due(const run_validation *self, const run_step *step)
{
    const mics_run *run = self->context->job->run;
    const bool due = run_is_due(run->validate_every, step->number);
    if (run->validation_batches == 0)
        return false;
    if (step->begins)
        return step->first || (due && self->context->progress->validated != step->number);
    return step->last || (due && !step->stops);
}

static run_need needs(void *state, const run_step *step)
{
    return is_due(state, step) ? RUN_NEEDS_STATE : RUN_NEEDS_NOTHING;
}

static mics_status after_step(void *state, run_step *step)
{
    run_validation *self = state;
    const run_context *context = self->context;
    const mics_job_callbacks *callbacks = &context->job->callbacks;
    if (!is_due(self, step))
        return MICS_OK;
    const mics_status status = run_validation_find_loss(self, &self->loss_last);
    if (status == MICS_ERR_IO) { // on all ranks
        step->told |= RUN_SENDS_UNREADABLE;
        run_saving_allow_reading(context->saving, false);
        MICS_TRY(run_saving_provide(context->saving, RUN_NEEDS_SAVED));
    }
    MICS_TRY(status);
    run_progress_validate(context->progress);
    step->validated = true;
    step->validation_loss = self->loss_last;
    if (isnan(self->loss_first)) {
        self->loss_first = self->loss_last;
        self->pairs_first = self->pairs_last;
    }
    if (run_is_rank_0(context) && callbacks->validation != NULL)
        callbacks->validation(callbacks->ctx, step->number, self->loss_last);
    run_reports_validation(context->reports, step->number, self->loss_last, &self->pairs_last);
    return MICS_OK;
}

// Of step 0 no line is kept, as no run resumes there.
static mics_status rewind_validation(void *state, const run_source *source)
{
    const run_validation *self = state;
    if (source->step == 0 && !isnan(self->loss_first))
        run_reports_validation(self->context->reports, 0, self->loss_first, &self->pairs_first);
    return MICS_OK;
}

static mics_status close_validation(void *state)
{
    run_batches_close(&((run_validation *)state)->batches);
    return MICS_OK;
}

const run_follower run_validation_follower = {.name = "validation",
                                              .open = open_validation,
                                              .needs = needs,
                                              .after_step = after_step,
                                              .rewind = rewind_validation,
                                              .close = close_validation};
