// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "sample_text.h"
#include "mics/log.h"
#include "mics/run.h"
#include "run/trainer.h"
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLE_TOKENS = 64 };

static mics_status draw(const run_trainer *self, mics_saved *saved, FILE *out)
{
    const mics_run *run = self->job->run;
    const mics_sampling sampling = {.tokens = SAMPLE_TOKENS,
                                    .temperature = 0.8,
                                    .top_k = 40,
                                    .seed = run->seed,
                                    .threads = self->job->budget.threads};
    bool large = false;
    MICS_TRY(mics_saved_is_large(saved, &large));
    if (large)
        return mics_fail(MICS_ERR_MEMORY, "the model is large beside this machine");
    MICS_TRY(mics_saved_load(saved, mics_saved_facts_get(saved).dtype));
    return mics_saved_generate(saved, run->sample_prompt, &sampling, out);
}

static mics_status draw_from(run_trainer *self, mics_memory *memory, int64_t step)
{
    const mics_job *job = self->job;
    char path[RUN_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    mics_saved *saved = NULL;
    snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, (long long)step);
    MICS_TRY(mics_saved_open(memory, path, &job->builder, &saved));
    FILE *out = open_memstream(&text, &bytes);
    mics_status status = out != NULL ? draw(self, saved, out) : MICS_ERR_MEMORY;
    if (out != NULL)
        fclose(out);
    mics_saved_close(saved);
    if (status == MICS_OK) {
        run_reports_sample(&self->reports, step, job->run->sample_prompt, text);
        if (job->callbacks.sample != NULL)
            job->callbacks.sample(job->callbacks.ctx, step, text, bytes);
    }
    free(text);
    return status;
}

// The model has memory of its own: the schedule's ledger tells what the rank's has, exactly.
static mics_status write_text(run_trainer *self, int64_t step)
{
    mics_memory *memory = NULL;
    MICS_TRY(mics_memory_open(&memory));
    const mics_status status = draw_from(self, memory, step);
    mics_memory_close(memory);
    return status;
}

// A text is drawn from the step's checkpoint. A save that fails is a warning, as everywhere.
static mics_status save(run_trainer *self)
{
    if (!run_share_is_saved(self))
        MICS_TRY(run_saving_begin(self));
    return run_saving_settle(self);
}

mics_status run_sample_follow(run_trainer *self, int64_t step)
{
    const mics_job *job = self->job;
    const int64_t every = job->run->sample_every;
    mics_comm *comm = self->rank->comm;
    if (every == 0 || step % every != 0 || job->tokenizer == NULL)
        return MICS_OK;
    self->sampled = step;
    MICS_TRY(run_guard_check(self, step, true));
    if (self->step != step)
        return MICS_OK;
    MICS_TRY(save(self));
    if (!self->saved || self->saved_step != step)
        return MICS_OK;
    MICS_TRY(mics_comm_set_timeout(comm, run_job_files_timeout_s(job)));
    if (comm->rank == 0 && !self->no_samples) {
        const bool before = mics_log_demote(true);
        self->no_samples = write_text(self, step) != MICS_OK;
        if (self->no_samples)
            mics_log(MICS_LOG_WARNING, "no text of step %lld, nor of later ones; training goes on",
                     (long long)step);
        mics_log_demote(before);
    }
    MICS_TRY(mics_engine_agree(self->engine, MICS_OK));
    return mics_comm_set_timeout(comm, job->run->comm_timeout_s);
}

mics_status run_sample_make_up(run_trainer *self)
{
    const int64_t step = self->step;
    bool due = false;
    if (self->job->run->sample_every == 0 || self->sampled == step)
        return MICS_OK;
    const bool mine = self->rank->comm->rank == 0 && run_left_out_text(self->job, step);
    MICS_TRY(mics_engine_any(self->engine, mine, &due));
    return due ? run_sample_follow(self, step) : MICS_OK;
}
