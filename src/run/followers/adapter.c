// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"
#include "base/file.h"
#include "mics/run.h"
#include <stdio.h>

static mics_status open_adapter(void *state, const run_context *context, void *memory)
{
    (void)memory;
    *(run_adapter *)state = (run_adapter){.context = context};
    return MICS_OK;
}

static run_need needs(void *state, const run_step *step)
{
    const mics_job *job = ((run_adapter *)state)->context->job;
    return step->last && job->run->lora.rank > 0 ? RUN_NEEDS_SAVED : RUN_NEEDS_NOTHING;
}

// With memory of its own, as texts.
static mics_status write_folder(const mics_job *job, int64_t step)
{
    char path[RUN_PATH_BYTES], dir[RUN_PATH_BYTES];
    mics_memory *memory = NULL;
    mics_saved *saved = NULL;
    snprintf(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, (long long)step);
    snprintf(dir, sizeof dir, "%s/adapter-%08lld", job->run->out, (long long)step);
    if (mics_file_is_there(dir)) // the run ended here before
        return MICS_OK;
    MICS_TRY(mics_memory_open(&memory));
    mics_status status = mics_saved_open(memory, path, &job->builder, &saved);
    if (status == MICS_OK)
        status = mics_saved_export(saved, dir, NULL);
    mics_saved_close(saved);
    mics_memory_close(memory);
    if (status == MICS_OK)
        run_job_note(job, "adapter of step %lld written to %s, as PEFT reads it", (long long)step,
                     dir);
    return status;
}

static mics_status after_step(void *state, run_step *step)
{
    const run_context *context = ((run_adapter *)state)->context;
    mics_status status = MICS_OK;
    if (needs(state, step) == RUN_NEEDS_NOTHING)
        return MICS_OK;
    MICS_TRY(run_await_files(context));
    if (run_is_rank_0(context))
        status = write_folder(context->job, step->number);
    MICS_TRY(mics_engine_agree(context->engine, status));
    return run_await_collectives(context);
}

const run_follower run_adapter_follower = {
    .name = "adapter", .open = open_adapter, .needs = needs, .after_step = after_step};
