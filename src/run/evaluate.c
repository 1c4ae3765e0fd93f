// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Loss of a checkpoint on texts. Every token but the first is predicted exactly once: whole windows
// in batches, then the windows that fill no batch, then the tokens that fill no window.
#include "base/file.h"
#include "mics/comm.h"
#include "mics/device.h"
#include "mics/engine.h"
#include "mics/log.h"
#include "saved.h"

enum {
    BATCH_TOKENS = 2048,      // of a whole batch, about
    DOWNLOADED_TOKENS = 2048, // of a window, where nobody knows how long sequences were in training
};

// Where the next window begins, and what was found so far.
typedef struct evaluation {
    const mics_saved *saved;
    const mics_corpus *corpus;
    int64_t next;              // first token of the next window
    int64_t sequences, length; // of the running part
    double loss_sum;           // over predicted tokens
    int64_t predicted;
} evaluation;

// ---- one part: some batches of one shape ----

// Row by row: inputs are the window, targets its successors.
static mics_status read_windows(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                int32_t *targets_out)
{
    evaluation *self = ctx;
    (void)micro_step;
    for (int64_t row = 0; row < self->sequences; row++) {
        MICS_TRY(mics_corpus_read(self->corpus, self->next, self->length,
                                  inputs_out + row * self->length));
        MICS_TRY(mics_corpus_read(self->corpus, self->next + 1, self->length,
                                  targets_out + row * self->length));
        self->next += self->length;
    }
    return MICS_OK;
}

static mics_status run_batches(evaluation *self, mics_engine *engine, int64_t batches)
{
    mics_batch_source source = {.read = read_windows, .ctx = self};
    MICS_TRY(run_saved_fill(self->saved, engine));
    for (int64_t batch = 0; batch < batches; batch++) {
        mics_step_result result;
        int64_t tokens = self->sequences * self->length;
        MICS_TRY(mics_engine_eval(engine, &source, &result));
        self->loss_sum += result.loss * (double)tokens;
        self->predicted += tokens;
    }
    return MICS_OK;
}

static mics_status open_schedule(const evaluation *self, mics_schedule **schedule_out)
{
    mics_machine machine;
    MICS_TRY(mics_machine_read(&machine));
    mics_schedule_spec spec = {
        .model = self->saved->model,
        .batch = {.sequences = self->sequences, .length = self->length, .threads = machine.cores},
        .micro_steps = 1,
        .recompute = true, // nothing is kept from unit to unit
        .evaluation_only = true,
    };
    MICS_TRY(mics_mesh_init(1, 1, (mics_sharding){1, 1, 1}, &spec.mesh));
    MICS_TRY(mics_schedule_open(self->saved->memory, &spec, schedule_out));
    return run_saved_check_fits(self->saved, "evaluation", (double)(*schedule_out)->ledger.total);
}

static mics_status open_comm(mics_memory *memory, mics_thread_world **world_out,
                             mics_comm **comm_out)
{
    mics_comm *inner = NULL;
    MICS_TRY(mics_thread_world_open(memory, 1, 1, world_out));
    MICS_TRY(mics_comm_thread_open(memory, *world_out, 0, &inner));
    mics_status status = mics_comm_count_open_take(memory, inner, 1, comm_out);
    if (status != MICS_OK)
        mics_comm_close(inner);
    return status;
}

static mics_status run_part(evaluation *self, int64_t sequences, int64_t length, int64_t batches)
{
    mics_memory *memory = self->saved->memory;
    mics_schedule *schedule = NULL;
    mics_thread_world *world = NULL;
    mics_comm *comm = NULL;
    mics_engine *engine = NULL;
    mics_status status = MICS_OK;
    if (sequences == 0 || length == 0 || batches == 0)
        return MICS_OK;
    self->sequences = sequences;
    self->length = length;
    MICS_TRY_OUT(open_schedule(self, &schedule));
    MICS_TRY_OUT(open_comm(memory, &world, &comm));
    mics_engine_spec spec = {.memory = memory, .schedule = schedule, .comm = comm};
    MICS_TRY_OUT(mics_engine_open(&spec, &engine));
    MICS_TRY_OUT(run_batches(self, engine, batches));
out:
    mics_engine_close(engine);
    mics_comm_close(comm);
    mics_thread_world_close(world);
    mics_schedule_close(schedule);
    return status;
}

// ---- the whole ----

static mics_status evaluate(evaluation *self, int64_t length)
{
    int64_t tokens = mics_corpus_tokens(self->corpus);
    if (tokens < 2)
        return mics_fail(MICS_ERR_INVALID, "--data: %lld tokens; at least 2 are needed",
                         (long long)tokens);
    int64_t windows = mics_sample_count(tokens, length), tail = tokens - 1 - windows * length;
    int64_t batch = BATCH_TOKENS / length > 0 ? BATCH_TOKENS / length : 1;
    MICS_TRY(run_part(self, batch, length, windows / batch));
    MICS_TRY(run_part(self, windows % batch, length, 1));
    return run_part(self, 1, tail, 1);
}

static mics_status choose_length(const mics_saved *saved, int64_t asked, int64_t *length_out)
{
    if (asked > saved->model->positions)
        return mics_fail(MICS_ERR_INVALID, "--sequence %lld: the model has %lld positions",
                         (long long)asked, (long long)saved->model->positions);
    *length_out = asked > 0 ? asked : saved->sequence;
    if (asked == 0 && saved->weights != NULL && saved->sequence > DOWNLOADED_TOKENS)
        *length_out = DOWNLOADED_TOKENS;
    return MICS_OK;
}

// A text has no tokens for a model whose tokenizer nobody knows.
static mics_status check_files(const mics_saved *saved, const char *const *files, int32_t count)
{
    for (int32_t i = 0; i < count && saved->tokenizer == NULL; i++) {
        if (!run_is_shard(files[i]))
            return mics_fail(MICS_ERR_INVALID, "%s: is a text, but %s %s; give shards (.bin)",
                             files[i], saved->path,
                             saved->weights != NULL
                                 ? "holds no tokenizer.json"
                                 : "was trained on token shards without a data.tokenizer");
    }
    return MICS_OK;
}

static mics_status frame_texts(const mics_saved *saved)
{
    mics_token_frame frame = {0};
    if (saved->tokenizer != NULL)
        MICS_TRY(run_saved_frame(saved, &frame));
    return frame.before_count + frame.after_count > 0
               ? mics_tokenizer_frame_texts(saved->tokenizer, "data.add_special_tokens")
               : MICS_OK;
}

mics_status mics_saved_evaluate(const mics_saved *saved, const char *const *files,
                                int32_t file_count, const char *text_field, int64_t sequence,
                                bool *begun_out, mics_evaluation *evaluation_out)
{
    mics_temp_dir cache = {0};
    evaluation self = {.saved = saved};
    mics_corpus *corpus = NULL;
    int64_t length = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(check_files(saved, files, file_count));
    MICS_TRY_OUT(choose_length(saved, sequence, &length));
    MICS_TRY_OUT(frame_texts(saved));
    MICS_TRY_OUT(mics_temp_dir_init(&cache));
    const mics_corpus_spec spec = {.patterns = files,
                                   .pattern_count = file_count,
                                   .vocab = (int32_t)saved->model->vocab,
                                   .tokenizer = saved->tokenizer,
                                   .cache_dir = cache.path,
                                   .text_field =
                                       text_field != NULL ? text_field : saved->text_field};
    MICS_TRY_OUT(mics_corpus_open(saved->memory, &spec, &corpus));
    self.corpus = corpus;
    if (begun_out != NULL)
        *begun_out = true;
    mics_log_hold(false);
    MICS_TRY_OUT(run_saved_speak(evaluate(&self, length)));
    *evaluation_out = (mics_evaluation){.loss = self.loss_sum / (double)self.predicted,
                                        .tokens = self.predicted,
                                        .sequence = length};
out:
    mics_corpus_close(corpus);
    mics_temp_dir_fini(&cache);
    return status;
}
