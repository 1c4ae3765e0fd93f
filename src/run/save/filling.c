// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank begins with, at the start of a run and where it goes back to an older state: its
// optimizer shards, its loss scale, and the losses that tell a spike.
#include "filling.h"
#include "import.h"

static void take_scaler(const run_context *context, const mics_checkpoint *checkpoint)
{
    const mics_checkpoint_scaler *saved = &mics_checkpoint_meta_get(checkpoint)->scaler;
    const mics_scaler scaler = {.scale = saved->scale,
                                .steps = saved->steps,
                                .last_overflow = saved->steps - saved->since_overflow,
                                .skipped = saved->skipped,
                                .hysteresis = (int32_t)saved->hysteresis};
    if (saved->scale > 0 && context->job->run->precision == MICS_RUN_PRECISION_FP16)
        mics_engine_set_scaler(context->engine, &scaler);
}

mics_status run_filling_state(const run_context *context, const mics_checkpoint *checkpoint,
                              mics_checkpoint_losses *recent_out)
{
    const mics_job *job = context->job;
    const mics_work_listener listener = {
        .ctx = job->callbacks.ctx,
        .progress = run_is_rank_0(context) ? job->callbacks.work : NULL,
    };
    *recent_out = (mics_checkpoint_losses){0};
    if (checkpoint != NULL) {
        *recent_out = mics_checkpoint_meta_get(checkpoint)->recent;
        take_scaler(context, checkpoint);
        return run_resume_fill(job->model, &job->run->optimizer, checkpoint, &listener,
                               context->engine);
    }
    if (job->import != NULL)
        return run_import_fill(job->model, job->import, &listener, context->engine);
    return mics_engine_init_random(context->engine, job->run->seed);
}
