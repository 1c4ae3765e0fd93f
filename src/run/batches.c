// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "batches.h"

mics_status run_batches_open(run_batches *self, const run_context *context)
{
    *self = (run_batches){.context = context};
    return run_scratch_init(context->rank->memory, run_job_sequence(context->job), &self->scratch);
}

void run_batches_close(run_batches *self)
{
    if (self->context != NULL)
        run_scratch_fini(self->context->rank->memory, &self->scratch);
    *self = (run_batches){0};
}

// Rows from `first` on of which no token counts.
static void fill_rows(const run_batches *self, int64_t first, int32_t *inputs, int32_t *targets)
{
    const int64_t length = run_job_sequence(self->context->job);
    const int64_t end = self->context->job->schedule->spec.batch.sequences * length;
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

// The sequences of a micro-batch: *rows_out of them from *begin_out on, the others are beyond the batch.
static void find_rows(const run_batches *self, int32_t micro_step, int64_t *begin_out,
                      int64_t *rows_out)
{
    const mics_comm *comm = self->context->rank->comm;
    const int64_t count = self->context->job->schedule->spec.batch.sequences;
    *begin_out = self->first + ((int64_t)micro_step * comm->ranks + comm->rank) * count;
    const int64_t left = self->end > *begin_out ? self->end - *begin_out : 0;
    *rows_out = left < count ? left : count;
}

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    run_batches *self = ctx;
    int64_t begin = 0, rows = 0;
    find_rows(self, micro_step, &begin, &rows);
    if (self->gave_up) // it is said once
        return give_up(self, inputs_out, targets_out);
    fill_rows(self, rows, inputs_out, targets_out);
    const mics_status status =
        run_samples_read(self->samples, begin, rows, &self->scratch, inputs_out, targets_out);
    return status == MICS_OK ? MICS_OK : give_up(self, inputs_out, targets_out);
}

static mics_status read_documents(void *ctx, int32_t micro_step, const int32_t *inputs,
                                  int32_t *segments_out)
{
    run_batches *self = ctx;
    const run_samples *samples = self->samples;
    const int64_t count = self->context->job->schedule->spec.batch.sequences;
    int64_t begin = 0, rows = 0;
    if (samples->packings != NULL) {
        find_rows(self, micro_step, &begin, &rows);
        for (int64_t i = rows * samples->sequence; i < count * samples->sequence; i++)
            segments_out[i] = -1;
        return run_samples_segments(samples, begin, rows, &self->scratch, segments_out);
    }
    run_samples_number(samples->document, inputs, count, samples->sequence, segments_out);
    return MICS_OK;
}

static mics_status read_references(void *ctx, int32_t micro_step, float *references_out)
{
    run_batches *self = ctx;
    const int64_t count = self->context->job->schedule->spec.batch.sequences;
    int64_t begin = 0, rows = 0;
    find_rows(self, micro_step, &begin, &rows);
    for (int64_t i = rows; i < count; i++)
        references_out[i] = 0;
    return run_samples_references(self->samples, begin, rows, &self->scratch, references_out);
}

mics_batch_source run_batches_at(run_batches *self, const run_samples *samples, int64_t first,
                                 int64_t end)
{
    const bool masked = self->context->job->run->document_mask || samples->packings != NULL;
    self->samples = samples;
    self->trains = samples == &self->context->job->train_samples;
    self->first = first * samples->each;
    self->end = end * samples->each;
    return (mics_batch_source){.read = read_batch,
                               .read_segments = masked ? read_documents : NULL,
                               .read_references =
                                   samples->references != NULL ? read_references : NULL,
                               .ctx = self};
}
