// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "texts.h"
#include "mics/log.h"
#include "mics/run.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLE_TOKENS = 64 };

static mics_status draw(const mics_job *job, mics_saved *saved, FILE *out)
{
    const mics_sampling sampling = {.tokens = SAMPLE_TOKENS,
                                    .temperature = 0.8,
                                    .top_k = 40,
                                    .seed = job->run->seed,
                                    .threads = job->budget.threads,
                                    .special_tokens = job->run->rows};
    bool large = false;
    MICS_TRY(mics_saved_is_large(saved, &large));
    if (large)
        return mics_fail(MICS_ERR_MEMORY, "the model is large beside this machine");
    MICS_TRY(mics_saved_load(saved, mics_saved_facts_get(saved).dtype));
    return mics_saved_generate(saved, job->run->sample_prompt, &sampling, out);
}

static mics_status draw_from(const run_context *context, mics_memory *memory, int64_t step)
{
    const mics_job *job = context->job;
    char path[RUN_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    mics_saved *saved = NULL;
    snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, (long long)step);
    MICS_TRY(mics_saved_open(memory, path, &job->builder, &saved));
    FILE *out = open_memstream(&text, &bytes);
    mics_status status = out != NULL ? draw(job, saved, out) : MICS_ERR_MEMORY;
    if (out != NULL)
        fclose(out);
    mics_saved_close(saved);
    if (status == MICS_OK) {
        run_reports_sample(context->reports, step, job->run->sample_prompt, text);
        if (job->callbacks.sample != NULL)
            job->callbacks.sample(job->callbacks.ctx, step, text, bytes);
    }
    free(text);
    return status;
}

// The model has memory of its own: the schedule's ledger tells what the rank's has, exactly.
static mics_status write_text(const run_context *context, int64_t step)
{
    mics_memory *memory = NULL;
    MICS_TRY(mics_memory_open(&memory));
    const mics_status status = draw_from(context, memory, step);
    mics_memory_close(memory);
    return status;
}

// ---- what was left out ----

// *newest_out: the step of the newest text; RUN_NO_STEP: there is none. Where the file cannot be read
// nothing counts as left out.
static bool is_left_out(const mics_job *job, int64_t step, int64_t *newest_out)
{
    *newest_out = RUN_NO_STEP;
    return step > 0 && run_is_due(job->run->sample_every, step) && job->tokenizer != NULL &&
           run_reports_newest(job->memory, job->run, "samples.jsonl", "text", newest_out) &&
           *newest_out < step;
}

bool run_texts_lack_last(const mics_job *job)
{
    int64_t newest;
    return job->resumes_newest && is_left_out(job, job->start_step, &newest) && newest > 0 &&
           newest == job->start_step - job->run->sample_every;
}

// ---- the follower ----

static mics_status open_texts(void *state, const run_context *context, void *memory)
{
    (void)memory;
    *(run_texts *)state = (run_texts){.context = context, .left_out = RUN_NO_STEP};
    return MICS_OK;
}

// The text of the step that the run resumes from, if it ended before that.
static mics_status begin(void *state)
{
    run_texts *self = state;
    const run_context *context = self->context;
    const int64_t step = context->progress->step;
    int64_t newest;
    bool due = false;
    self->left_out = RUN_NO_STEP;
    if (context->job->run->sample_every == 0 || context->progress->sampled == step)
        return MICS_OK;
    const bool mine = run_is_rank_0(context) && is_left_out(context->job, step, &newest);
    MICS_TRY(mics_engine_any(context->engine, mine, &due));
    self->left_out = due ? step : RUN_NO_STEP;
    return MICS_OK;
}

static bool is_due(const run_texts *self, const run_step *step)
{
    const mics_job *job = self->context->job;
    if (step->begins)
        return self->left_out == step->number && (!step->first || job->resumes_newest);
    return run_is_due(job->run->sample_every, step->number) && job->tokenizer != NULL &&
           !step->stops;
}

static run_need needs(void *state, const run_step *step)
{
    return is_due(state, step) ? RUN_NEEDS_SETTLED : RUN_NEEDS_NOTHING;
}

static mics_status after_step(void *state, run_step *step)
{
    run_texts *self = state;
    const run_context *context = self->context;
    if (!is_due(self, step))
        return MICS_OK;
    run_progress_sample(context->progress);
    if (context->progress->saved != step->number)
        return MICS_OK;
    MICS_TRY(run_await_files(context));
    if (run_is_rank_0(context) && !self->failed) {
        const bool before = mics_log_demote(true);
        self->failed = write_text(context, step->number) != MICS_OK;
        if (self->failed)
            mics_log(MICS_LOG_WARNING, "no text of step %lld, nor of later ones; training goes on",
                     (long long)step->number);
        mics_log_demote(before);
    }
    MICS_TRY(mics_engine_agree(context->engine, MICS_OK));
    return run_await_collectives(context);
}

const run_follower run_texts_follower = {
    .name = "texts", .open = open_texts, .begin = begin, .needs = needs, .after_step = after_step};
