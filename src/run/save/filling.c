// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank begins with, at the start of a run and where it goes back to an older state: its
// optimizer shards, its loss scale, the losses that tell a spike, and the lines of its reports.
#include "base/file.h"
#include "import.h"
#include "run/trainer.h"
#include <math.h>

static void take_scaler(const run_trainer *self, const mics_checkpoint *checkpoint)
{
    const mics_checkpoint_scaler *saved = &mics_checkpoint_meta_get(checkpoint)->scaler;
    const mics_scaler scaler = {.scale = saved->scale,
                                .steps = saved->steps,
                                .last_overflow = saved->steps - saved->since_overflow,
                                .skipped = saved->skipped,
                                .hysteresis = (int32_t)saved->hysteresis};
    if (saved->scale > 0 && self->job->run->precision == MICS_RUN_PRECISION_FP16)
        mics_engine_set_scaler(self->engine, &scaler);
}

mics_status run_filling_state(run_trainer *self, const mics_checkpoint *checkpoint)
{
    const mics_job *job = self->job;
    const mics_work_listener listener = {
        .ctx = job->callbacks.ctx,
        .progress = self->rank->comm->rank == 0 ? job->callbacks.work : NULL,
    };
    self->guard.recent = (mics_checkpoint_losses){0};
    if (checkpoint != NULL) {
        self->guard.recent = mics_checkpoint_meta_get(checkpoint)->recent;
        take_scaler(self, checkpoint);
        return run_resume_fill(job->model, &job->run->optimizer, checkpoint, &listener,
                               self->engine);
    }
    if (job->import != NULL)
        return run_import_fill(job->model, job->import, &listener, self->engine);
    return mics_engine_init_random(self->engine, job->run->seed);
}

mics_status run_filling_reports(run_trainer *self, int64_t step)
{
    if (self->rank->comm->rank != 0)
        return MICS_OK;
    return run_reports_open(self->rank->memory, self->job->run, step, &self->reports);
}

mics_status run_filling_cut_reports(run_trainer *self, int64_t step)
{
    self->best.known = false; // it is what the lines that are left say
    MICS_TRY(run_reports_cut(&self->reports, step));
    // Of step 0 no line is kept, as no run resumes there.
    if (step == 0 && !isnan(self->validation_first))
        run_reports_validation(&self->reports, 0, self->validation_first);
    return MICS_OK;
}
