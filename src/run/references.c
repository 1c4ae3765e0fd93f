// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "references.h"
#include "base/file.h"
#include "base/free.h"
#include "context.h"
#include "mics/log.h"
#include "run/ranks/same.h"
#include "run/save/import.h"
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

// Of a folder's tensors, if one is named; 0: it is not there any more, and the run goes on.
static uint64_t hash_folder(const mics_job *job, const char *folder, bool named, bool adapter)
{
    mics_safetensors *reader = NULL;
    uint64_t hash = !named;
    if (!named)
        return hash;
    const bool muted = mics_log_mute(true); // who imports it says why it cannot be read
    const mics_status status =
        adapter ? run_import_open_adapter(job->memory, job->model, folder, &reader)
                : run_import_open(job->memory, job->model, folder, &reader);
    if (status == MICS_OK && run_same_hash_weights(reader, &hash) != MICS_OK)
        hash = 0;
    mics_log_mute(muted);
    mics_safetensors_close(reader);
    return hash;
}

static uint64_t hash_weights(const mics_job *job)
{
    const mics_run *run = job->run;
    const bool imports = strcmp(run->model_init, "random") != 0;
    const bool adapts = run->lora.rank > 0 && strcmp(run->adapter_init, "none") != 0;
    const uint64_t of[] = {hash_folder(job, run->model_init, imports, false),
                           hash_folder(job, run->adapter_init, adapts, true),
                           imports ? 0 : run->seed};
    return of[0] == 0 || of[1] == 0 ? 0 : XXH3_64bits(of, sizeof of);
}

// ---- the file ----

static int64_t value_count(const run_references_file *of)
{
    return of->train + of->validation;
}

static size_t bytes_of(const run_references_file *of)
{
    return sizeof *of + (size_t)value_count(of) * sizeof *of->values;
}

uint64_t run_references_hash(const run_references_file *of)
{
    return XXH3_64bits(of->values, bytes_of(of) - sizeof *of);
}

// Takes values that are known, if the file is of the same.
static mics_status read_file(const mics_job *job, run_references_file *of)
{
    char *path = NULL, *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_file_join(job->memory, job->run->out, file_name, &path));
    const bool there = mics_file_is_there(path), muted = mics_log_mute(true);
    if (there && mics_file_read_whole(job->memory, path, bytes_of(of), &text, &bytes) != MICS_OK)
        bytes = 0; // it is longer, and so of others
    mics_log_mute(muted);
    const run_references_file *file = (const void *)text;
    bool same = bytes == bytes_of(of);
    if (same) {
        of->weights = of->weights == 0 ? file->weights : of->weights;
        same = memcmp(file, of, offsetof(run_references_file, hash)) == 0 &&
               file->hash == run_references_hash(file);
    }
    if (same)
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
    of->hash = run_references_hash(of);
    MICS_TRY(
        mics_file_replace(job->memory, job->run->out, file_name, (const char *)of, bytes_of(of)));
    return mics_file_sync_dir(job->run->out);
}

// ---- what is read ----

// Marks the pairs of sequences `first` to `end`, whose corpus' samples begin at `offset`.
static mics_status mark(const run_samples *samples, int64_t first, int64_t end, int64_t offset,
                        run_scratch *scratch, bool *wanted)
{
    for (int64_t at = first; at < end; at += 2) {
        int64_t item = 0;
        MICS_TRY(run_samples_item(samples, at, scratch, &item));
        wanted[(offset + item) / 2] = true;
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
    const int64_t held = job->validation != NULL ? job->references.file->train : 0;
    MICS_TRY(mark(&job->train_samples, first > 0 ? first : 0, end, 0, scratch, wanted));
    return mark(&job->validation_samples, 0, run->validation_batches * batch, held, scratch,
                wanted);
}

static mics_status list_lacking(mics_job *job, run_references *of)
{
    const int64_t pairs = value_count(of->file) / 2;
    bool *wanted = NULL;
    run_scratch scratch = {0};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(MICS_NEW(job->memory, pairs, &wanted));
    MICS_TRY_OUT(MICS_NEW(job->memory, pairs, &of->lacking));
    MICS_TRY_OUT(run_scratch_init(job->memory, run_job_sequence(job), &scratch));
    MICS_TRY_OUT(mark_all(job, &scratch, wanted));
    for (int64_t i = 0; i < pairs; i++) {
        if (wanted[i] && isnan(of->file->values[2 * i]))
            of->lacking[of->lacking_count++] = 2 * i;
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
    const run_references_file head = {.magic = {'M', 'I', 'C', 'S', 'R', 'E', 'F', '1'},
                                      .data = hash_data(job),
                                      .weights = hash_weights(job),
                                      .train = mics_corpus_samples(job->train),
                                      .validation = own ? mics_corpus_samples(job->validation) : 0};
    void *block = NULL;
    MICS_TRY(mics_alloc(job->memory, MICS_MEM_HOST, bytes_of(&head), &block));
    of->file = block;
    *of->file = head;
    for (int64_t i = 0; i < value_count(&head); i++)
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

// A rank's pairs of a micro-batch.
typedef struct computing {
    const run_context *context;
    run_scratch scratch;
    int64_t first; // of those that are lacking
} computing;

// Which sample sequence `row` of the micro-batch is; beyond the last pair that one again.
static int64_t find_item(const computing *self, int64_t row, const run_samples **samples_out)
{
    const mics_job *job = self->context->job;
    const run_references *of = &job->references;
    const int64_t at = self->first + row / 2, last = of->lacking_count - 1;
    const int64_t item = of->lacking[at < last ? at : last] + row % 2;
    const bool held = item >= of->file->train;
    *samples_out = held ? &job->validation_samples : &job->train_samples;
    return item - (held ? of->file->train : 0);
}

static mics_status read_rows(void *ctx, int32_t micro_step, int32_t *inputs_out,
                             int32_t *targets_out)
{
    computing *self = ctx;
    const mics_batch *batch = &self->context->job->schedule->spec.batch;
    const run_samples *samples = NULL;
    (void)micro_step;
    for (int64_t row = 0; row < batch->sequences; row++) {
        const int64_t item = find_item(self, row, &samples);
        MICS_TRY(run_samples_read_item(samples, item, &self->scratch,
                                       inputs_out + row * batch->length,
                                       targets_out + row * batch->length));
    }
    return MICS_OK;
}

static mics_status read_segments(void *ctx, int32_t micro_step, const int32_t *inputs,
                                 int32_t *segments_out)
{
    const computing *self = ctx;
    const mics_batch *batch = &self->context->job->schedule->spec.batch;
    const run_samples *samples = NULL;
    (void)micro_step;
    (void)inputs;
    for (int64_t row = 0; row < batch->sequences; row++) {
        const int64_t item = find_item(self, row, &samples);
        const int64_t tokens = run_samples_item_tokens(samples, item);
        for (int64_t t = 0; t < batch->length; t++)
            segments_out[row * batch->length + t] = t < tokens ? 0 : -1;
    }
    return MICS_OK;
}

// Of all ranks' blocks: log-probabilities, and whether the rank is to stop.
static mics_status take_blocks(const computing *self, int64_t first, int64_t rows,
                               const float *blocks, bool *stops)
{
    run_references *of = &self->context->job->references;
    for (int32_t rank = 0; rank < self->context->rank->comm->ranks; rank++, blocks += rows + 1) {
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
            if (run_is_first_local(self->context))
                of->file->values[of->lacking[at] + row % 2] = blocks[row];
        }
    }
    return MICS_OK;
}

static mics_status compute_rows(computing *self, float *blocks, bool *stops)
{
    const run_context *context = self->context;
    const mics_job *job = context->job;
    const mics_job_callbacks *callbacks = &job->callbacks;
    const int32_t ranks = context->rank->comm->ranks, rank = context->rank->comm->rank;
    const int64_t rows = job->schedule->spec.batch.sequences, pairs = rows / 2;
    const int64_t count = job->references.lacking_count;
    const mics_batch_source source = {
        .read = read_rows, .read_segments = read_segments, .ctx = self};
    float *mine = blocks + rank * (rows + 1);
    for (int64_t first = 0; first < count && !*stops; first += pairs * ranks) {
        const int64_t done = first + pairs * ranks;
        self->first = first + rank * pairs;
        mine[rows] = run_is_first_local(context) && callbacks->should_stop != NULL &&
                     callbacks->should_stop(callbacks->ctx);
        MICS_TRY(mics_engine_log_probs(context->engine, &source, mine));
        MICS_TRY(run_rank_gather(context->rank, blocks, (size_t)(rows + 1) * sizeof *blocks));
        MICS_TRY(take_blocks(self, first, rows, blocks, stops));
        if (run_is_rank_0(context) && callbacks->work != NULL)
            callbacks->work(callbacks->ctx, "log-probabilities of pairs in the reference",
                            done < count ? done : count, count);
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
