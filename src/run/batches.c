// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "batches.h"

mics_status run_batches_open(run_batches *self, const run_context *context)
{
    *self = (run_batches){.context = context};
    return MICS_NEW(context->rank->memory, run_job_sequence(context->job) + 1, &self->row);
}

void run_batches_close(run_batches *self)
{
    if (self->context != NULL)
        mics_free(self->context->rank->memory, self->row);
    *self = (run_batches){0};
}

// Rows from `first` on of which no token counts.
static void fill_rows(const run_batches *self, int64_t first, int32_t *inputs, int32_t *targets)
{
    const int64_t length = run_job_sequence(self->context->job);
    const int64_t end = self->context->job->run->micro_batch * length;
    for (int64_t i = first * length; i < end; i++) {
        inputs[i] = 0;
        targets[i] = -1;
    }
}

// No token counts. A step is held, so that all ranks come to its end and save the state before it.
static mics_status give_up(run_batches *self, int32_t *inputs_out, int32_t *targets_out)
{
    mics_engine *engine = self->context->engine;
    fill_rows(self, 0, inputs_out, targets_out);
    self->gave_up = true;
    if (!self->trains) // who validates asks all ranks
        return MICS_OK;
    (void)mics_engine_hold(engine); // this rank's ballot comes behind its batches
    mics_engine_tell(engine, RUN_SENDS_UNREADABLE);
    return MICS_OK;
}

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    run_batches *self = ctx;
    const mics_comm *comm = self->context->rank->comm;
    const int64_t count = self->context->job->run->micro_batch;
    const int64_t begin = self->first + ((int64_t)micro_step * comm->ranks + comm->rank) * count;
    const int64_t left = self->end > begin ? self->end - begin : 0;
    const int64_t rows = left < count ? left : count;
    if (self->gave_up) // it is said once
        return give_up(self, inputs_out, targets_out);
    fill_rows(self, rows, inputs_out, targets_out);
    const mics_status status =
        run_samples_read(self->samples, begin, rows, self->row, inputs_out, targets_out);
    return status == MICS_OK ? MICS_OK : give_up(self, inputs_out, targets_out);
}

static mics_status read_documents(void *ctx, int32_t micro_step, const int32_t *inputs,
                                  int32_t *segments_out)
{
    const run_batches *self = ctx;
    const run_samples *samples = self->samples;
    (void)micro_step;
    run_samples_number(samples->document, inputs, self->context->job->run->micro_batch,
                       samples->sequence, segments_out);
    return MICS_OK;
}

mics_batch_source run_batches_at(run_batches *self, const run_samples *samples, int64_t first,
                                 int64_t end)
{
    const bool masked = self->context->job->run->document_mask;
    self->samples = samples;
    self->trains = samples == &self->context->job->train_samples;
    self->first = first;
    self->end = end;
    return (mics_batch_source){
        .read = read_batch, .read_segments = masked ? read_documents : NULL, .ctx = self};
}
