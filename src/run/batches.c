// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "batches.h"
#include "base/free.h"
#include <string.h>

mics_status run_batches_open(run_batches *self, const run_context *context)
{
    const mics_job *job = context->job;
    const int64_t length = run_job_sequence(job);
    const int64_t own = mics_run_own_length(job->run, job->model->positions);
    mics_memory *memory = context->rank->memory;
    *self = (run_batches){.context = context,
                          .sequences = job->schedule->spec.batch.sequences,
                          .own = own,
                          .begin = own * (context->rank->comm->rank % job->run->sequence)};
    MICS_TRY(run_scratch_init(memory, length, &self->scratch));
    if (job->run->sequence == 1)
        return MICS_OK;
    MICS_TRY(MICS_NEW(memory, self->sequences * length, &self->inputs));
    return MICS_NEW(memory, self->sequences * length, &self->targets);
}

void run_batches_close(run_batches *self)
{
    if (self->context != NULL) {
        run_scratch_fini(self->context->rank->memory, &self->scratch);
        MICS_FREE_ALL(self->context->rank->memory, self->inputs, self->targets);
    }
    *self = (run_batches){0};
}

// Rows from `first` on, each of so many tokens of which none counts.
static void fill_rows(const run_batches *self, int64_t first, int64_t length, int32_t *inputs,
                      int32_t *targets)
{
    for (int64_t i = first * length; i < self->sequences * length; i++) {
        inputs[i] = 0;
        targets[i] = -1;
    }
}

// Of whole rows the positions from `begin` on, `count` of each; behind the sequence is `padding`.
static void cut_rows(const run_batches *self, const int32_t *rows, int64_t begin, int64_t count,
                     int32_t padding, int32_t *out)
{
    const int64_t length = run_job_sequence(self->context->job);
    for (int64_t row = 0; row < self->sequences; row++) {
        for (int64_t t = 0; t < count; t++)
            out[row * count + t] = begin + t < length ? rows[row * length + begin + t] : padding;
    }
}

// No token counts. A step is held, so that all ranks come to its end and save the state before it. Of
// several islands the rank fails: they have agreed as the step began.
static mics_status give_up(run_batches *self, int32_t *inputs_out, int32_t *targets_out)
{
    mics_engine *engine = self->context->engine;
    if (self->trains && run_job_islands(self->context->job) > 1)
        return MICS_ERR_IO;
    fill_rows(self, 0, self->own, inputs_out, targets_out);
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
    const mics_job *job = self->context->job;
    const int64_t place =
        (int64_t)micro_step * run_job_data_ranks(job) + comm->rank / job->run->sequence;
    *begin_out = self->first + place * self->sequences;
    const int64_t left = self->end > *begin_out ? self->end - *begin_out : 0;
    *rows_out = left < self->sequences ? left : self->sequences;
}

static mics_status read_batch(void *ctx, int32_t micro_step, int32_t *inputs_out,
                              int32_t *targets_out)
{
    run_batches *self = ctx;
    int64_t begin = 0, rows = 0;
    find_rows(self, micro_step, &begin, &rows);
    if (self->gave_up) // it is said once
        return give_up(self, inputs_out, targets_out);
    int32_t *inputs = self->inputs != NULL ? self->inputs : inputs_out;
    int32_t *targets = self->inputs != NULL ? self->targets : targets_out;
    fill_rows(self, rows, run_job_sequence(self->context->job), inputs, targets);
    if (run_samples_read(self->samples, begin, rows, &self->scratch, inputs, targets) != MICS_OK)
        return give_up(self, inputs_out, targets_out);
    if (self->inputs == NULL)
        return MICS_OK;
    cut_rows(self, inputs, self->begin, self->own, 0, inputs_out);
    cut_rows(self, targets, self->begin, self->own, -1, targets_out);
    return MICS_OK;
}

// Segments are of whole sequences on each of their ranks, as attention is.
static mics_status read_segments(void *ctx, int32_t micro_step, const int32_t *inputs,
                                 int32_t *segments_out)
{
    run_batches *self = ctx;
    const run_samples *samples = self->samples;
    const mics_job *job = self->context->job;
    const bool cut = self->inputs != NULL;
    const int64_t length = run_job_sequence(job);
    int32_t *segments = cut ? self->targets : segments_out; // which were handed out
    int64_t begin = 0, rows = 0;
    if (samples->packings != NULL) {
        find_rows(self, micro_step, &begin, &rows);
        for (int64_t i = rows * length; i < self->sequences * length; i++)
            segments[i] = -1;
        MICS_TRY(run_samples_segments(samples, begin, rows, &self->scratch, segments));
    } else if (job->run->document_mask) {
        run_samples_number(samples->document, cut ? self->inputs : inputs, self->sequences, length,
                           segments);
    } else { // padding alone is apart
        memset(segments, 0, (size_t)(self->sequences * length) * sizeof *segments);
    }
    if (cut)
        cut_rows(self, segments, 0, self->own * job->run->sequence, -1, segments_out);
    return MICS_OK;
}

static mics_status read_references(void *ctx, int32_t micro_step, float *references_out)
{
    run_batches *self = ctx;
    int64_t begin = 0, rows = 0;
    find_rows(self, micro_step, &begin, &rows);
    for (int64_t i = rows; i < self->sequences; i++)
        references_out[i] = 0;
    return run_samples_references(self->samples, begin, rows, &self->scratch, references_out);
}

mics_batch_source run_batches_at(run_batches *self, const run_samples *samples, int64_t first,
                                 int64_t end)
{
    const bool segments = mics_model_reads_segments(self->context->job->model);
    self->samples = samples;
    self->trains = samples == &self->context->job->train_samples;
    self->first = first * samples->each;
    self->end = end * samples->each;
    return (mics_batch_source){.read = read_batch,
                               .read_segments = segments ? read_segments : NULL,
                               .read_references =
                                   samples->references != NULL ? read_references : NULL,
                               .ctx = self};
}
