// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/references: a header, then an fp32 for each sample of data.train and data.validation.
#include "references.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/free.h"
#include "context.h"
#include "mics/log.h"
#include "run/save/import.h"
#include <math.h>
#include <string.h>
#include <xxhash.h>

static const char file_name[] = "references";
static const char magic[8] = "MICSREF1";

typedef struct header {
    char magic[sizeof magic];
    uint64_t data, weights, hash; // hash: of the values
    int64_t train, validation;
} header;

// ---- what they are of ----

static uint64_t hash_data(const mics_job *job)
{
    const uint64_t of[] = {mics_corpus_hash(job->train),
                           job->validation != NULL ? mics_corpus_hash(job->validation) : 0,
                           (uint64_t)run_job_sequence(job), (uint64_t)job->budget.dtype,
                           (uint64_t)job->run->precision};
    return XXH3_64bits(of, sizeof of);
}

// Of a folder's tensors; `none` where none is named. 0: it is not there any more, and the run goes on.
static uint64_t hash_folder(const mics_job *job, const char *folder, const char *none, bool adapter)
{
    mics_safetensors *reader = NULL;
    uint64_t hash = 0;
    if (strcmp(folder, none) == 0)
        return XXH3_64bits(none, strlen(none));
    const bool muted = mics_log_mute(true); // who imports it says why it cannot be read
    const mics_status status =
        adapter ? run_import_open_adapter(job->memory, job->model, folder, &reader)
                : run_import_open(job->memory, job->model, folder, &reader);
    if (status != MICS_OK || run_import_hash_files(reader, &hash) != MICS_OK)
        hash = 0;
    mics_log_mute(muted);
    mics_safetensors_close(reader);
    return hash;
}

static uint64_t hash_weights(const mics_job *job)
{
    const mics_run *run = job->run;
    const bool adapts = run->lora.rank > 0;
    const uint64_t of[] = {hash_folder(job, run->model_init, "random", false),
                           hash_folder(job, adapts ? run->adapter_init : "none", "none", true),
                           run->seed};
    return of[0] == 0 || of[1] == 0 ? 0 : XXH3_64bits(of, sizeof of);
}

static int64_t value_count(const run_references *of)
{
    return of->train + of->validation;
}

uint64_t run_references_hash(const run_references *references)
{
    return XXH3_64bits(references->values,
                       (size_t)value_count(references) * sizeof *references->values);
}

// ---- the file ----

static bool is_same(const run_references *of, const header *head)
{
    return memcmp(head->magic, magic, sizeof magic) == 0 && head->data == of->data &&
           (head->weights == of->weights || of->weights == 0) && head->train == of->train &&
           head->validation == of->validation;
}

// One that is too long, or cannot be read, is not of these.
static mics_status take_file(const mics_job *job, const char *path, run_references *of)
{
    header head = {0};
    char *file = NULL;
    size_t bytes = 0;
    const size_t wanted = (size_t)value_count(of) * sizeof *of->values;
    const bool muted = mics_log_mute(true);
    const mics_status status =
        mics_file_read_whole(job->memory, path, sizeof head + wanted, &file, &bytes);
    mics_log_mute(muted);
    if (status == MICS_ERR_MEMORY)
        return status;
    if (status == MICS_OK && bytes >= sizeof head)
        memcpy(&head, file, sizeof head);
    const bool same = is_same(of, &head);
    const bool good = same && bytes == sizeof head + wanted &&
                      head.hash == XXH3_64bits(file + sizeof head, wanted);
    if (good) {
        memcpy(of->values, file + sizeof head, wanted);
        of->weights = head.weights;
    } else if (job->world->first == 0) {
        mics_log(MICS_LOG_INFO, "%s: %s, so it is made anew", path,
                 same ? "is damaged" : "is of other data or weights, lengths or precision");
    }
    mics_free(job->memory, file);
    return MICS_OK;
}

static mics_status read_file(const mics_job *job, run_references *of)
{
    char *path = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_file_join(job->memory, job->run->out, file_name, &path));
    if (mics_file_is_there(path))
        status = take_file(job, path, of);
    mics_free(job->memory, path);
    return status;
}

static mics_status write_file(const mics_job *job)
{
    const run_references *of = &job->references;
    const size_t bytes = (size_t)value_count(of) * sizeof *of->values;
    const header head = {.data = of->data,
                         .weights = of->weights,
                         .hash = run_references_hash(of),
                         .train = of->train,
                         .validation = of->validation};
    char *file = NULL;
    MICS_TRY(MICS_NEW(job->memory, (int64_t)(sizeof head + bytes), &file));
    memcpy(file, &head, sizeof head);
    memcpy(file, magic, sizeof magic);
    memcpy(file + sizeof head, of->values, bytes);
    const mics_status status =
        mics_file_replace(job->memory, job->run->out, file_name, file, sizeof head + bytes);
    mics_free(job->memory, file);
    return status == MICS_OK ? mics_file_sync_dir(job->run->out) : status;
}

// ---- what is read ----

// Marks the pairs of sequences `first` to `end`, whose corpus' samples begin at `offset`.
static mics_status mark(const run_samples *samples, int64_t first, int64_t end, int64_t offset,
                        run_scratch *scratch, bool *wanted)
{
    for (int64_t at = first; at < end; at += samples->each) {
        int64_t item = 0;
        MICS_TRY(run_samples_item(samples, at, scratch, &item));
        wanted[(offset + item) / samples->each] = true;
    }
    return MICS_OK;
}

// Of the phase from its begin on, as a run may go back within it; and what is validated.
static mics_status mark_all(const mics_job *job, run_scratch *scratch, bool *wanted)
{
    const mics_run *run = job->run;
    const int64_t each = mics_run_sequences_each(run), batch = run->global_batch * each;
    const int64_t done = (job->start_step - run->phase_begin) * batch;
    const int64_t first = job->start.sample * each - done;
    const int64_t end = first + (mics_run_phase_end(run) - run->phase_begin) * batch;
    MICS_TRY(mark(&job->train_samples, first > 0 ? first : 0, end, 0, scratch, wanted));
    if (run->validation_batches == 0)
        return MICS_OK;
    return mark(&job->validation_samples, 0, run->validation_batches * batch,
                job->validation != NULL ? job->references.train : 0, scratch, wanted);
}

static mics_status list_lacking(mics_job *job, run_references *of)
{
    const int64_t pairs = value_count(of) / 2;
    bool *wanted = NULL;
    run_scratch scratch = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(MICS_NEW(job->memory, pairs, &wanted));
    MICS_TRY_OUT(MICS_NEW(job->memory, pairs, &of->lacking));
    MICS_TRY_OUT(run_scratch_init(job->memory, run_job_sequence(job), &scratch));
    MICS_TRY_OUT(mark_all(job, &scratch, wanted));
    for (int64_t i = 0; i < pairs; i++) {
        if (wanted[i] && isnan(of->values[2 * i]))
            of->lacking[of->lacking_count++] = 2 * i;
    }
out:
    run_scratch_fini(job->memory, &scratch);
    mics_free(job->memory, wanted);
    return status;
}

mics_status run_references_open(mics_job *job)
{
    run_references *of = &job->references;
    if (mics_run_sequences_each(job->run) == 1)
        return MICS_OK;
    of->train = mics_corpus_samples(job->train);
    of->validation = job->validation != NULL ? mics_corpus_samples(job->validation) : 0;
    of->data = hash_data(job);
    of->weights = hash_weights(job);
    MICS_TRY(MICS_NEW(job->memory, value_count(of), &of->values));
    for (int64_t i = 0; i < value_count(of); i++)
        of->values[i] = NAN;
    job->train_samples.references = of->values;
    job->validation_samples.references = of->values + (job->validation != NULL ? of->train : 0);
    MICS_TRY(read_file(job, of));
    return list_lacking(job, of);
}

void run_references_close(mics_job *job)
{
    MICS_FREE_ALL(job->memory, job->references.values, job->references.lacking);
    job->references = (run_references){0};
}

// ---- computing ----

// A rank's pairs of a micro-batch.
typedef struct computing {
    const run_context *context;
    run_scratch scratch;
    int64_t first, count; // of those that are lacking
} computing;

// Samples of sequence `row` of the micro-batch, and their corpus; false: beyond the last pair.
static bool find_row(const computing *self, int64_t row, const run_samples **samples_out,
                     int64_t *item_out)
{
    const mics_job *job = self->context->job;
    const run_references *of = &job->references;
    if (row / 2 >= self->count)
        return false;
    const int64_t item = of->lacking[self->first + row / 2] + row % 2;
    const bool held = item >= of->train;
    *samples_out = held ? &job->validation_samples : &job->train_samples;
    *item_out = item - (held ? of->train : 0);
    return true;
}

static mics_status read_rows(void *ctx, int32_t micro_step, int32_t *inputs_out,
                             int32_t *targets_out)
{
    computing *self = ctx;
    const mics_batch *batch = &self->context->job->schedule->spec.batch;
    const run_samples *samples = NULL;
    int64_t item = 0;
    (void)micro_step;
    for (int64_t row = 0; row < batch->sequences; row++) {
        int32_t *inputs = inputs_out + row * batch->length;
        int32_t *targets = targets_out + row * batch->length;
        if (find_row(self, row, &samples, &item)) {
            MICS_TRY(run_samples_read_item(samples, item, &self->scratch, inputs, targets));
            continue;
        }
        for (int64_t t = 0; t < batch->length; t++) {
            inputs[t] = 0;
            targets[t] = -1;
        }
    }
    return MICS_OK;
}

static mics_status read_segments(void *ctx, int32_t micro_step, const int32_t *inputs,
                                 int32_t *segments_out)
{
    const computing *self = ctx;
    const mics_batch *batch = &self->context->job->schedule->spec.batch;
    const run_samples *samples = NULL;
    int64_t item = 0;
    (void)micro_step;
    (void)inputs;
    for (int64_t row = 0; row < batch->sequences; row++) {
        const int64_t tokens =
            find_row(self, row, &samples, &item) ? run_samples_item_tokens(samples, item) : 0;
        for (int64_t t = 0; t < batch->length; t++)
            segments_out[row * batch->length + t] = t < tokens ? 0 : -1;
    }
    return MICS_OK;
}

// Of all ranks' blocks: log-probabilities, and whether the rank is to stop.
static mics_status take_blocks(const computing *self, int64_t first, int64_t rows,
                               const float *blocks, bool *stops)
{
    const run_context *context = self->context;
    run_references *of = &context->job->references;
    for (int32_t rank = 0; rank < context->rank->comm->ranks; rank++, blocks += rows + 1) {
        *stops = *stops || blocks[rows] != 0;
        for (int64_t row = 0; row < rows; row++) {
            const int64_t at = first + (rank * rows + row) / 2;
            if (at >= of->lacking_count)
                break;
            if (!isfinite(blocks[row]))
                return mics_fail(MICS_ERR_NUMERIC,
                                 "the log-probability of an answer is not finite in the model that "
                                 "training begins with (model.init), so nothing can be compared "
                                 "with it; are its weights good?");
            if (run_is_first_local(context))
                of->values[of->lacking[at] + row % 2] = blocks[row];
        }
    }
    return MICS_OK;
}

static void show(const run_context *context, int64_t done)
{
    const mics_job *job = context->job;
    if (run_is_rank_0(context) && job->callbacks.work != NULL)
        job->callbacks.work(job->callbacks.ctx, "log-probabilities of pairs in the reference", done,
                            job->references.lacking_count);
}

static mics_status compute_rows(computing *self, float *blocks, bool *stops)
{
    static const double KEPT_EVERY_US = 60e6;
    const run_context *context = self->context;
    const mics_job *job = context->job;
    const mics_job_callbacks *callbacks = &job->callbacks;
    const mics_comm *comm = context->rank->comm;
    const int64_t rows = job->schedule->spec.batch.sequences, pairs = rows / 2;
    const int64_t count = job->references.lacking_count;
    const mics_batch_source source = {
        .read = read_rows, .read_segments = read_segments, .ctx = self};
    float *mine = blocks + comm->rank * (rows + 1);
    double kept_us = mics_clock_us();
    for (int64_t first = 0; first < count && !*stops; first += pairs * comm->ranks) {
        self->first = first + comm->rank * pairs;
        self->count = count - self->first;
        mine[rows] = run_is_first_local(context) && callbacks->should_stop != NULL &&
                     callbacks->should_stop(callbacks->ctx);
        MICS_TRY(mics_engine_log_probs(context->engine, &source, false, mine));
        MICS_TRY(run_rank_gather(context->rank, blocks, (size_t)(rows + 1) * sizeof *blocks));
        MICS_TRY(take_blocks(self, first, rows, blocks, stops));
        show(context, first + pairs * comm->ranks < count ? first + pairs * comm->ranks : count);
        if (run_is_rank_0(context) && mics_clock_us() - kept_us > KEPT_EVERY_US) {
            MICS_TRY(write_file(job));
            kept_us = mics_clock_us();
        }
    }
    return MICS_OK;
}

mics_status run_references_compute(const run_context *context)
{
    mics_job *job = context->job;
    mics_memory *memory = context->rank->memory;
    computing self = {.context = context};
    float *blocks = NULL;
    bool stops = false;
    const int64_t rows = job->schedule->spec.batch.sequences;
    mics_status status = MICS_NEW(memory, context->rank->comm->ranks * (rows + 1), &blocks);
    if (status == MICS_OK)
        status = run_scratch_init(memory, run_job_sequence(job), &self.scratch);
    status = run_rank_agree(context->rank, status);
    if (status == MICS_OK)
        status = compute_rows(&self, blocks, &stops);
    if (status == MICS_OK)
        status = run_rank_agree(context->rank, run_is_rank_0(context) ? write_file(job) : MICS_OK);
    run_scratch_fini(memory, &self.scratch);
    mics_free(memory, blocks);
    return status == MICS_OK && stops ? MICS_ERR_INTERRUPTED : status;
}
