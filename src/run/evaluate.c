// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Loss of a checkpoint on texts. Every token but the first is predicted exactly once: whole windows
// in batches, then the windows that fill no batch, then the tokens that fill no window. Of an
// encoder the same windows are samples, of which the same tokens are hidden each time.
#include "base/file.h"
#include "masking.h"
#include "mics/core/engine.h"
#include "mics/log.h"
#include "run/ranks/world.h"
#include "run/save/saved.h"
#include "run/save/saved_engine.h"
#include "samples.h"
#include <string.h>

enum {
    BATCH_TOKENS = 2048,      // of a whole batch, about
    DOWNLOADED_TOKENS = 2048, // of a window, where nobody knows how long sequences were in training
};

// How long ranks wait for the slowest of them: its share may take hours.
static const double WAIT_S = 7 * 24 * 3600.0;

// Of hidden tokens: the same in every evaluation.
static const uint64_t MASKING_SEED = 1;

// What one process does of an evaluation: of the whole batches the share [first, last), the last
// process also what fills no batch. Sums of losses are kept by batch, so that they can be added in
// the order in which one process would.
typedef struct evaluation {
    const mics_saved *saved;
    const mics_corpus *corpus;
    run_world *world;
    run_masking hidden;         // of an encoder
    const run_masking *masking; // that; NULL: it is none
    int64_t sequence;           // tokens of a window
    int64_t stride;             // from one window's begin to the next
    int64_t next;               // first token of the next window
    int64_t sequences, length;  // of the running part; with the frame
    double *sums;               // (count) of losses over predicted tokens, by batch of this process
    int64_t count;
    int64_t predicted;   // tokens of this process that counted
    int64_t done, share; // tokens of this process: read, and in all
} evaluation;

// ---- one part: some batches of one shape ----

// A window in its frame. It is hidden by its first token's number, whatever ranks there are.
static mics_status read_masked(evaluation *self, int32_t *inputs, int32_t *targets)
{
    const int64_t tokens = self->length - run_masking_frame_tokens(self->masking);
    MICS_TRY(mics_corpus_read(self->corpus, self->next, tokens,
                              inputs + self->masking->frame.before_count));
    run_masking_apply(self->masking, MASKING_SEED, self->next, self->length, inputs, targets);
    self->next += tokens;
    return MICS_OK;
}

// What the window before counted already does not count again.
static void leave_out(const evaluation *self, int32_t *targets)
{
    for (int64_t i = 0; self->next > 0 && i < self->sequence - self->stride; i++)
        targets[i] = -1;
}

// Row by row: inputs are the window, targets its successors.
static mics_status read_windows(void *ctx, int32_t micro_step, int32_t *inputs_out,
                                int32_t *targets_out)
{
    evaluation *self = ctx;
    (void)micro_step;
    for (int64_t row = 0; row < self->sequences && self->masking != NULL; row++)
        MICS_TRY(
            read_masked(self, inputs_out + row * self->length, targets_out + row * self->length));
    for (int64_t row = 0; row < self->sequences && self->masking == NULL; row++) {
        MICS_TRY(mics_corpus_read(self->corpus, self->next, self->length,
                                  inputs_out + row * self->length));
        MICS_TRY(mics_corpus_read(self->corpus, self->next + 1, self->length,
                                  targets_out + row * self->length));
        leave_out(self, targets_out + row * self->length);
        self->next += self->stride;
    }
    return MICS_OK;
}

static mics_status read_documents(void *ctx, int32_t micro_step, const int32_t *inputs,
                                  int32_t *segments_out)
{
    const evaluation *self = ctx;
    (void)micro_step;
    run_samples_number(mics_tokenizer_document(self->saved->tokenizer), inputs, self->sequences,
                       self->length, segments_out);
    return MICS_OK;
}

static mics_status run_batches(evaluation *self, mics_engine *engine, int64_t batches)
{
    const bool masked = self->saved->document_mask && self->saved->tokenizer != NULL;
    const mics_batch_source source = {
        .read = read_windows, .read_segments = masked ? read_documents : NULL, .ctx = self};
    for (int64_t batch = 0; batch < batches; batch++) {
        mics_step_result result;
        MICS_TRY(mics_engine_eval(engine, &source, &result));
        // A tail of special tokens alone has none that counts.
        self->sums[self->count++] = result.counted > 0 ? result.loss * (double)result.counted : 0;
        self->predicted += result.counted;
        self->done += self->sequences * (self->length - run_masking_frame_tokens(self->masking));
        if (self->world->first == 0) // for all: shares are about equal
            mics_work_tell(&self->saved->listener, "evaluating", self->done, self->share);
    }
    return MICS_OK;
}

static mics_status run_part(evaluation *self, int64_t sequences, int64_t length, int64_t batches)
{
    run_saved_engine runs = {0};
    const int32_t here = self->world->ranks_here;
    if (sequences == 0 || length == 0 || batches == 0)
        return MICS_OK;
    self->sequences = sequences;
    self->length = length + run_masking_frame_tokens(self->masking);
    mics_status status = run_saved_engine_open(
        self->saved, sequences, self->length, here, 0,
        here > 1 ? "evaluation by all ranks of this machine" : "evaluation", &runs);
    if (status == MICS_OK)
        status = run_batches(self, runs.engine, batches);
    run_saved_engine_close(&runs);
    return status;
}

// ---- a process' share ----

static int64_t share_begin(int64_t batches, int64_t rank, int64_t ranks)
{
    return batches / ranks * rank + (rank < batches % ranks ? rank : batches % ranks);
}

// Of one process: some whole batches, and what fills none. `capacity`: sums of the largest share.
typedef struct share {
    int64_t batch, batches, first; // windows of a batch; batches, and the first of them
    int64_t windows, tail;         // that fill no batch; tokens that fill no window
    int64_t capacity;
} share;

static mics_status find_share(const evaluation *self, share *share_out)
{
    const int64_t tokens = mics_corpus_tokens(self->corpus), length = self->sequence;
    const int32_t rank = self->world->first, ranks = self->world->ranks;
    if (tokens < 2)
        return mics_fail(MICS_ERR_INVALID, "--data: %lld tokens; at least 2 are needed",
                         (long long)tokens);
    // The last token is no input.
    const int64_t inputs = self->masking != NULL ? tokens : tokens - 1, stride = self->stride;
    const int64_t windows = inputs >= length ? (inputs - length) / stride + 1 : 0;
    const int64_t left = windows > 0 ? inputs - (windows - 1) * stride - length : inputs;
    const int64_t batch = BATCH_TOKENS / length > 0 ? BATCH_TOKENS / length : 1;
    const int64_t batches = windows / batch;
    const bool last = rank == ranks - 1;
    *share_out = (share){.batch = batch,
                         .first = share_begin(batches, rank, ranks),
                         .windows = last ? windows % batch : 0,
                         .tail = !last || left == 0 ? 0
                                 : windows > 0      ? left + length - stride
                                                    : left,
                         .capacity = batches / ranks + 3};
    share_out->batches = share_begin(batches, rank + 1, ranks) - share_out->first;
    return MICS_OK;
}

static mics_status evaluate(evaluation *self, const share *mine)
{
    const int64_t length = self->sequence;
    self->share = (mine->batches * mine->batch + mine->windows) * length + mine->tail;
    self->next = mine->first * mine->batch * self->stride;
    MICS_TRY(run_part(self, mine->batch, length, mine->batches));
    MICS_TRY(run_part(self, mine->windows, length, 1));
    return run_part(self, 1, mine->tail, 1);
}

// ---- the whole ----

static mics_status add_shares(const evaluation *self, const share *mine, mics_evaluation *found)
{
    run_world *world = self->world;
    const int64_t row = mine->capacity + 2; // sums, how many they are, and their tokens
    double *all = NULL;
    double loss = 0, tokens = 0;
    MICS_TRY(run_world_agree(world, MICS_NEW(self->saved->memory, world->ranks * row, &all)));
    double *own = all + world->first * row;
    own[0] = (double)self->count;
    own[1] = (double)self->predicted;
    memcpy(own + 2, self->sums, (size_t)self->count * sizeof *own);
    mics_status status = run_world_gather(world, own, (size_t)row * sizeof *own, all);
    for (int32_t rank = 0; status == MICS_OK && rank < world->ranks; rank++) {
        const double *of = all + rank * row;
        for (int64_t i = 0; i < (int64_t)of[0]; i++)
            loss += of[2 + i];
        tokens += of[1];
    }
    mics_free(self->saved->memory, all);
    if (status == MICS_OK && tokens == 0)
        status = mics_fail(MICS_ERR_INVALID, "--data: no token counts: all are special tokens, "
                                             "which are not hidden");
    MICS_TRY(run_world_agree(world, status));
    *found = (mics_evaluation){.loss = loss / tokens,
                               .tokens = (int64_t)tokens,
                               .sequence = self->sequence + run_masking_frame_tokens(self->masking),
                               .stride = self->stride,
                               .ranks = world->ranks,
                               .first = world->first == 0};
    return MICS_OK;
}

static mics_status choose_length(const mics_saved *saved, int64_t asked, int64_t *length_out)
{
    if (asked > saved->model->positions)
        return mics_fail(MICS_ERR_INVALID, "--sequence %lld: the model has %lld positions",
                         (long long)asked, (long long)saved->model->positions);
    *length_out = asked > 0 ? asked : saved->sequence;
    if (asked == 0 && saved->checkpoint == NULL && saved->sequence > DOWNLOADED_TOKENS)
        *length_out = DOWNLOADED_TOKENS;
    return MICS_OK;
}

static mics_status choose_stride(evaluation *self, int64_t asked)
{
    self->stride = asked > 0 ? asked : self->sequence;
    if (asked > 0 && self->masking != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "--stride: %s is an encoder, whose hidden tokens see "
                         "both sides; leave it out",
                         self->saved->path);
    return asked <= self->sequence
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID,
                           "--stride %lld: would leave tokens out between windows of %lld; at most "
                           "that many work",
                           (long long)asked, (long long)self->sequence);
}

// A text has no tokens for a model whose tokenizer nobody knows.
static mics_status check_files(const mics_saved *saved, const char *const *files, int32_t count)
{
    for (int32_t i = 0; i < count && saved->tokenizer == NULL; i++) {
        if (!run_is_shard(files[i]))
            return mics_fail(MICS_ERR_INVALID, "%s: is a text, but %s %s; give shards (.bin)",
                             files[i], saved->path,
                             saved->checkpoint == NULL
                                 ? "holds no tokenizer.json"
                                 : "was trained on token shards without a data.tokenizer");
    }
    return MICS_OK;
}

// A window is what the frame leaves of a sequence.
static mics_status open_masking(evaluation *self)
{
    if (!self->saved->model->masked)
        return MICS_OK;
    MICS_TRY(run_masking_init(self->saved->memory, self->saved->tokenizer, self->saved->path,
                              &self->hidden));
    if (self->hidden.vocab > self->saved->model->vocab)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: its tokenizer has %d tokens, but the model's vocab_size is %lld; is "
                         "it another model's tokenizer?",
                         self->saved->path, (int)self->hidden.vocab,
                         (long long)self->saved->model->vocab);
    self->masking = &self->hidden;
    self->sequence -= run_masking_frame_tokens(self->masking);
    return self->sequence > 0
               ? MICS_OK
               : mics_fail(MICS_ERR_INVALID, "--sequence: holds nothing but special tokens; give a "
                                             "longer one");
}

static mics_status frame_texts(const mics_saved *saved)
{
    mics_token_frame frame = {0};
    if (saved->tokenizer != NULL && !saved->model->masked)
        MICS_TRY(run_saved_frame(saved, &frame));
    return frame.before_count + frame.after_count > 0
               ? mics_tokenizer_frame_texts(saved->tokenizer, "data.add_special_tokens")
               : MICS_OK;
}

static mics_status open_corpus(evaluation *self, const mics_evaluation_spec *as, const char *cache,
                               mics_corpus **corpus_out)
{
    const mics_saved *saved = self->saved;
    const char *field = as->text_field;
    const mics_corpus_spec spec = {.patterns = as->files,
                                   .pattern_count = as->file_count,
                                   .vocab = (int32_t)saved->model->vocab,
                                   .tokenizer = saved->tokenizer,
                                   .cache_dir = cache,
                                   .text_field = field != NULL ? field : saved->text_field,
                                   .special_tokens = as->special_tokens || saved->special_tokens};
    MICS_TRY(mics_corpus_open(saved->memory, &spec, corpus_out));
    self->corpus = *corpus_out;
    return MICS_OK;
}

// Nodes may have other files at the same paths; each would evaluate its share of another corpus.
static mics_status check_same(const evaluation *self)
{
    run_world *world = self->world;
    const uint64_t mine[] = {(uint64_t)mics_corpus_tokens(self->corpus),
                             mics_corpus_hash(self->corpus)};
    uint64_t(*all)[2] = NULL;
    MICS_TRY(run_world_agree(world, MICS_NEW(self->saved->memory, world->ranks, &all)));
    mics_status status = run_world_gather(world, mine, sizeof mine, all);
    int32_t other = 0;
    while (status == MICS_OK && other < world->ranks &&
           memcmp(all[other], all[0], sizeof mine) == 0)
        other++;
    if (status == MICS_OK && other < world->ranks)
        status =
            mics_fail(MICS_ERR_INVALID,
                      "--data: rank %d has other data (%lld tokens) than rank 0 (%lld tokens); "
                      "give all nodes the same files at these paths",
                      (int)other, (long long)all[other][0], (long long)all[0][0]);
    mics_free(self->saved->memory, all);
    return run_world_agree(world, status);
}

static mics_status evaluate_own(evaluation *self, const share *mine)
{
    const mics_status status = evaluate(self, mine);
    if (status == MICS_ERR_FORMAT)
        mics_log_add(RUN_SAVED_ADVICE);
    return run_world_agree(self->world, status);
}

// What every process does by itself, until all say how that went.
static mics_status evaluate_share(evaluation *self, const mics_evaluation_spec *spec,
                                  bool *begun_out, mics_evaluation *evaluation_out)
{
    const mics_saved *saved = self->saved;
    mics_temp_dir cache = {0};
    mics_corpus *corpus = NULL;
    share mine = {0};
    mics_status status = spec->status;
    MICS_TRY_OUT(status);
    MICS_TRY_OUT(check_files(saved, spec->files, spec->file_count));
    MICS_TRY_OUT(choose_length(saved, spec->sequence, &self->sequence));
    MICS_TRY_OUT(open_masking(self));
    MICS_TRY_OUT(choose_stride(self, spec->stride));
    MICS_TRY_OUT(frame_texts(saved));
    MICS_TRY_OUT(mics_temp_dir_init(&cache));
    MICS_TRY_OUT(open_corpus(self, spec, cache.path, &corpus));
    MICS_TRY_OUT(find_share(self, &mine));
    MICS_TRY_OUT(MICS_NEW(saved->memory, mine.capacity, &self->sums));
out:
    status = run_world_agree(self->world, status);
    if (status == MICS_OK)
        status = check_same(self);
    if (status == MICS_OK && begun_out != NULL)
        *begun_out = true;
    if (status == MICS_OK)
        status = evaluate_own(self, &mine);
    if (status == MICS_OK)
        status = add_shares(self, &mine, evaluation_out);
    mics_corpus_close(corpus);
    mics_temp_dir_fini(&cache);
    return status;
}

mics_status mics_saved_evaluate(const mics_saved *saved, const mics_evaluation_spec *spec,
                                bool *begun_out, mics_evaluation *evaluation_out)
{
    evaluation self = {.saved = saved};
    mics_memory *memory = NULL;
    MICS_TRY(mics_memory_open(&memory));
    if (spec->status == MICS_OK)
        mics_log_hold(mics_job_is_launched());
    mics_status status =
        run_world_open(memory, &(run_world_spec){.timeout_s = WAIT_S}, &self.world);
    if (status == MICS_OK)
        status = evaluate_share(&self, spec, begun_out, evaluation_out);
    mics_log_release(status != MICS_OK, -1);
    run_world_close(self.world);
    if (saved != NULL) {
        mics_free(saved->memory, self.sums);
        run_masking_fini(&self.hidden);
    }
    mics_memory_close(memory);
    return status;
}
