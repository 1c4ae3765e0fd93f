// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "references.h"
#include "base/file.h"
#include "base/free.h"
#include "batches.h"
#include "mics/log.h"
#include "run/ranks/same.h"
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <xxhash.h>

static const char file_name[] = "references";

// ---- what they are of ----

static uint64_t hash_data(const mics_job *job)
{
    const char *config = mics_json_text(job->config);
    const uint64_t of[] = {XXH3_64bits(config, strlen(config)),
                           mics_corpus_hash(job->train),
                           job->validation != NULL ? mics_corpus_hash(job->validation) : 0,
                           (uint64_t)run_job_sequence(job),
                           (uint64_t)job->budget.dtype,
                           (uint64_t)job->run->precision};
    return XXH3_64bits(of, sizeof of);
}

// Of what the run begins with, as far as it is open.
static mics_status hash_weights(const mics_job *job, uint64_t *hash_out)
{
    uint64_t of[] = {0, 0, job->import != NULL ? 0 : job->run->seed};
    if (job->import != NULL)
        MICS_TRY(run_same_hash_weights(job->import, &of[0]));
    if (job->adapter != NULL)
        MICS_TRY(run_same_hash_weights(job->adapter, &of[1]));
    *hash_out = XXH3_64bits(of, sizeof of);
    return MICS_OK;
}

// ---- the file ----

static size_t value_bytes(const run_references_file *of)
{
    return (size_t)(of->train + of->validation) * sizeof *of->values;
}

// Takes values that are known, if the file is of the same. A run that goes on has those of its start,
// whatever model.init is now.
static mics_status read_file(const mics_job *job, run_references_file *of)
{
    char *path = NULL, *text = NULL;
    const size_t whole = sizeof *of + value_bytes(of);
    size_t bytes = 0;
    MICS_TRY(mics_file_join(job->memory, job->run->out, file_name, &path));
    const bool there = mics_file_is_there(path), muted = mics_log_mute(true);
    if (there && mics_file_read_whole(job->memory, path, whole, &text, &bytes) != MICS_OK)
        bytes = 0; // it is longer, and so of others
    mics_log_mute(muted);
    const run_references_file *file = (const void *)text;
    if (file != NULL && bytes == whole &&
        memcmp(file, of, offsetof(run_references_file, weights)) == 0 &&
        (job->checkpoint != NULL || file->weights == of->weights) && file->train == of->train &&
        file->hash == XXH3_64bits(file->values, value_bytes(file)))
        memcpy(of, file, bytes);
    else if (there && job->world->first == 0)
        mics_log(MICS_LOG_INFO,
                 "%s: is of other data, weights, lengths or precision, or damaged; it is made anew",
                 path);
    mics_free(job->memory, text);
    mics_free(job->memory, path);
    return MICS_OK;
}

static mics_status write_file(const mics_job *job)
{
    run_references_file *of = job->references.file;
    uint64_t weights = 0;
    MICS_TRY(hash_weights(job, &weights));
    if (of->weights != 0 && of->weights != weights)
        return mics_fail(
            MICS_ERR_INVALID,
            "%s/%s: is of other weights than model.init and adapter.init have now, and "
            "lacks pairs that the run is to read; give those that it began with",
            job->run->out, file_name);
    of->weights = weights;
    of->hash = XXH3_64bits(of->values, value_bytes(of));
    MICS_TRY(mics_file_replace(job->memory, job->run->out, file_name, (const char *)of,
                               sizeof *of + value_bytes(of)));
    return mics_file_sync_dir(job->run->out);
}

// ---- what is read ----

// Marks the pairs of sequences `first` to `end`, until all are.
static mics_status mark(const run_samples *samples, int64_t first, int64_t end,
                        run_scratch *scratch, bool *wanted)
{
    int64_t left = samples->windows;
    for (int64_t at = first; at < end && left > 0; at += 2) {
        int64_t item = 0;
        MICS_TRY(run_samples_item(samples, at, scratch, &item));
        left -= !wanted[item / 2];
        wanted[item / 2] = true;
    }
    return MICS_OK;
}

// Of the phase from its begin on, as a run may go back within it; and what is validated.
static mics_status mark_all(const mics_job *job, run_scratch *scratch, bool *wanted)
{
    const mics_run *run = job->run;
    const int64_t batch = 2 * run->global_batch;
    const int64_t first = 2 * job->start.sample - (job->start_step - run->phase_begin) * batch;
    const int64_t end = first + (mics_run_phase_end(run) - run->phase_begin) * batch;
    const int64_t held = job->validation != NULL ? job->references.file->train / 2 : 0;
    MICS_TRY(mark(&job->train_samples, first > 0 ? first : 0, end, scratch, wanted));
    return mark(&job->validation_samples, 0, run->validation_batches * batch, scratch,
                wanted + held);
}

static mics_status list_lacking(mics_job *job, run_references *of)
{
    const int64_t train = of->file->train / 2, pairs = train + of->file->validation / 2;
    bool *wanted = NULL;
    run_scratch scratch = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(MICS_NEW(job->memory, pairs, &wanted));
    MICS_TRY_OUT(MICS_NEW(job->memory, pairs, &of->lacking));
    MICS_TRY_OUT(run_scratch_init(job->memory, run_job_sequence(job), &scratch));
    MICS_TRY_OUT(mark_all(job, &scratch, wanted));
    for (int64_t i = 0; i < pairs; i++) {
        if (!wanted[i] || !isnan(of->file->values[2 * i]))
            continue;
        of->lacking_train += i < train;
        of->lacking[of->lacking_count++] = 2 * (i < train ? i : i - train);
    }
out:
    run_scratch_fini(job->memory, &scratch);
    mics_free(job->memory, wanted);
    return status;
}

mics_status run_references_open(mics_job *job)
{
    if (mics_run_sequences_each(job->run) == 1)
        return MICS_OK;
    run_references *of = &job->references;
    const bool own = job->validation != NULL;
    if (job->model->masks > 0 && job->world->first == 0)
        mics_log(MICS_LOG_INFO, "training on pairs draws dropout, which TRL's DPOTrainer does not "
                                "by default; model.dropout 0 and adapter.lora_dropout 0 leave it "
                                "out");
    run_references_file head = {.magic = {'M', 'I', 'C', 'S', 'R', 'E', 'F', '1'},
                                .data = hash_data(job),
                                .train = mics_corpus_samples(job->train),
                                .validation = own ? mics_corpus_samples(job->validation) : 0};
    void *block = NULL;
    if (job->checkpoint == NULL)
        MICS_TRY(hash_weights(job, &head.weights));
    MICS_TRY(mics_alloc(job->memory, MICS_MEM_HOST, sizeof head + value_bytes(&head), &block));
    of->file = block;
    *of->file = head;
    for (int64_t i = 0; i < head.train + head.validation; i++)
        of->file->values[i] = NAN;
    job->train_samples.references = of->file->values;
    job->validation_samples.references = of->file->values + (own ? head.train : 0);
    MICS_TRY(read_file(job, of->file));
    return list_lacking(job, of);
}

void run_references_close(mics_job *job)
{
    MICS_FREE_ALL(job->memory, job->references.file, job->references.lacking);
    job->references = (run_references){0};
}

// ---- computing ----

typedef struct computing {
    const run_context *context;
    run_batches batches;
    int64_t rows;  // of a micro-batch
    float *blocks; // (ranks, rows)
    bool stops;
} computing;

// Of the pairs of `listed` from number `first` on. values: of its corpus.
static mics_status take_blocks(const computing *self, const int64_t *listed, int64_t first,
                               int64_t count, float *values)
{
    const int64_t rows = self->rows * self->context->rank->comm->ranks;
    for (int64_t row = 0; row < rows && first + row / 2 < count; row++) {
        if (!isfinite(self->blocks[row]))
            return mics_fail(MICS_ERR_NUMERIC,
                             "the log-probability of an answer is not finite in the model that "
                             "training begins with (model.init), so nothing can be compared with "
                             "it; are its weights good?");
        if (run_is_first_local(self->context))
            values[listed[first + row / 2] + row % 2] = self->blocks[row];
    }
    return MICS_OK;
}

// `before`: pairs of the other corpus, which are done.
static mics_status compute_listed(computing *self, const run_samples *of, const int64_t *listed,
                                  int64_t count, float *values, int64_t before)
{
    const run_context *context = self->context;
    const mics_job_callbacks *callbacks = &context->job->callbacks;
    const int64_t pairs = self->rows / 2 * context->rank->comm->ranks;
    float *mine = self->blocks + context->rank->comm->rank * self->rows;
    run_samples samples = *of;
    samples.listed = listed;
    for (int64_t first = 0; first < count && !self->stops; first += pairs) {
        const bool asked = run_is_first_local(context) && callbacks->should_stop != NULL &&
                           callbacks->should_stop(callbacks->ctx);
        const mics_batch_source source = run_batches_at(&self->batches, &samples, first, count);
        MICS_TRY(mics_engine_log_probs(context->engine, &source, mine));
        MICS_TRY(run_rank_gather(context->rank, self->blocks, (size_t)self->rows * sizeof *mine));
        MICS_TRY(take_blocks(self, listed, first, count, values));
        MICS_TRY(mics_engine_any(context->engine, asked, &self->stops));
        if (run_is_rank_0(context) && callbacks->work != NULL)
            callbacks->work(callbacks->ctx, "log-probabilities of pairs in the reference",
                            before + (first + pairs < count ? first + pairs : count),
                            context->job->references.lacking_count);
    }
    return MICS_OK;
}

static mics_status compute(computing *self)
{
    const mics_job *job = self->context->job;
    const run_references *of = &job->references;
    const int64_t train = of->lacking_train;
    float *values = of->file->values;
    bool unreadable = false; // on any rank, which has said why
    MICS_TRY(compute_listed(self, &job->train_samples, of->lacking, train, values, 0));
    MICS_TRY(compute_listed(self, &job->validation_samples, of->lacking + train,
                            of->lacking_count - train, values + of->file->train, train));
    MICS_TRY(mics_engine_any(self->context->engine, self->batches.gave_up, &unreadable));
    return unreadable ? MICS_ERR_IO : MICS_OK;
}

mics_status run_references_compute(const run_context *context)
{
    const mics_job *job = context->job;
    run_rank *rank = context->rank;
    computing self = {.context = context, .rows = job->schedule->spec.batch.sequences};
    mics_status status = MICS_NEW(rank->memory, rank->comm->ranks * self.rows, &self.blocks);
    if (status == MICS_OK)
        status = run_batches_open(&self.batches, context);
    status = run_rank_agree(rank, status);
    if (status == MICS_OK)
        status = compute(&self);
    if (status == MICS_OK)
        status = run_rank_agree(rank, run_is_rank_0(context) ? write_file(job) : MICS_OK);
    run_batches_close(&self.batches);
    mics_free(rank->memory, self.blocks);
    return status == MICS_OK && self.stops ? MICS_ERR_INTERRUPTED : status;
}
