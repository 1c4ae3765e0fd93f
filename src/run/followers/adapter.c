// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "adapter.h"
#include "base/file.h"
#include "base/text.h"
#include "config/peft.h"
#include "mics/run.h"
#include "run/hf_metadata.h"
#include "run/save/saved.h"

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

// With memory of its own, as texts. A folder of an earlier attempt at the step is of other weights.
static mics_status write_folder(const mics_job *job, const run_step *step)
{
    char path[RUN_PATH_BYTES], dir[RUN_PATH_BYTES], whole[RUN_PATH_BYTES];
    const long long number = step->number;
    mics_memory *memory = NULL;
    mics_saved *saved = NULL;
    mics_text_format(path, sizeof path, "%s/step-%08lld", job->checkpoints_dir, number);
    mics_text_format(dir, sizeof dir, "%s/adapter-%08lld", job->run->out, number);
    mics_text_format(whole, sizeof whole, "%s/" MICS_PEFT_WEIGHTS, dir);
    if (step->begins && mics_file_is_there(whole)) // the run ended here before
        return MICS_OK;
    MICS_TRY(mics_memory_open(&memory));
    mics_status status = run_saved_open_alone(memory, path, &job->builder, &saved);
    if (status == MICS_OK) {
        run_hf_metadata_remove(saved, dir);
        status = mics_saved_export(saved, dir, NULL);
    }
    mics_saved_close(saved);
    mics_memory_close(memory);
    if (status == MICS_OK)
        run_job_note(job, "adapter of step %lld written to %s, as PEFT reads it", number, dir);
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
        status = write_folder(context->job, step);
    MICS_TRY(mics_engine_agree(context->engine, status));
    return run_await_collectives(context);
}

const run_follower run_adapter_follower = {
    .name = "adapter", .open = open_adapter, .needs = needs, .after_step = after_step};
