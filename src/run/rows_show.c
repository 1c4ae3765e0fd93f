// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The first rows of a run's data as the tokens that would train.
#include "base/free.h"
#include "io/data/chats.h"
#include "job.h"
#include "mics/log.h"
#include "run/rows.h"
#include <stdio.h>

typedef struct showing {
    mics_memory *memory;
    const mics_tokenizer *tokenizer;
    const mics_chats *chats;
    bool pairs;
    int64_t left;
    void (*show)(void *ctx, const mics_job_sample *sample);
    void *ctx;
} showing;

typedef struct mics_job_sample_part part;

// Tokens of a list in turn, as long as they count or do not.
static mics_status make_parts(const showing *self, const mics_job_sample *sample, part *parts,
                              int64_t *count_out)
{
    for (int64_t at = 0, end; at < sample->count; at = end) {
        char *text = NULL;
        size_t bytes = 0;
        for (end = at + 1; end < sample->count && sample->counts[end] == sample->counts[at];)
            end++;
        MICS_TRY(mics_tokenizer_decode_more(self->tokenizer, sample->tokens + at, end - at, &text,
                                            &bytes));
        parts[(*count_out)++] = (part){text, sample->counts[at]};
    }
    return MICS_OK;
}

static mics_status show_tokens(const showing *self, const char *name, int32_t *tokens,
                               int64_t count)
{
    bool *counts = NULL;
    part *parts = NULL;
    mics_status status = MICS_OK;
    mics_job_sample sample = {.name = name, .tokens = tokens, .count = count};
    MICS_TRY_OUT(MICS_NEW(self->memory, count + 1, &counts));
    MICS_TRY_OUT(MICS_NEW(self->memory, count + 1, &parts));
    for (int64_t i = 0; i < count; i++) {
        counts[i] = i > 0 && (tokens[i] & MICS_SAMPLE_COUNTS) != 0;
        tokens[i] >>= MICS_SAMPLE_SHIFT;
    }
    sample.counts = counts;
    sample.parts = parts;
    MICS_TRY_OUT(make_parts(self, &sample, parts, &sample.part_count));
    self->show(self->ctx, &sample);
out:
    for (int64_t i = 0; parts != NULL && i < count; i++)
        mics_free(self->memory, (char *)parts[i].text);
    MICS_FREE_ALL(self->memory, counts, parts);
    return status;
}

// Each sample by itself: of a pair the two answers.
static mics_status show_row(void *ctx, mics_row *row)
{
    static const char *const sides[] = {", chosen", ", rejected"};
    showing *self = ctx;
    char name[RUN_PATH_BYTES + 64];
    int32_t *tokens = NULL;
    int64_t count = 0;
    mics_status status = MICS_OK;
    MICS_TRY(mics_chats_tokens(self->chats, row->name, row->value, &tokens, &count));
    for (int64_t at = 0, end; at < count && status == MICS_OK; at = end) {
        for (end = at + 1; end < count && (tokens[end] & MICS_SAMPLE_BEGINS) == 0;)
            end++;
        snprintf(name, sizeof name, "%s%s", row->name, self->pairs ? sides[at > 0] : "");
        status = show_tokens(self, name, tokens + at, end - at);
    }
    mics_free(self->memory, tokens);
    row->last = --self->left <= 0;
    return status;
}

static mics_status stop_at(void *ctx, mics_row *row)
{
    (void)ctx;
    row->last = true;
    return MICS_OK;
}

// A file that is not there, or whose first row is bad, is the better reason.
static mics_status fail_texts(mics_memory *memory, const mics_run *run)
{
    const mics_chat_columns columns = run_rows_columns(run);
    const mics_rows_spec rows = {run->train, run->train_count, columns.names, 0};
    MICS_TRY(mics_rows_walk(memory, &rows, stop_at, NULL));
    return mics_fail(MICS_ERR_INVALID,
                     "%s: is read as texts, and not as chats or prompts and completions, whose "
                     "tokens count or do not: of a text all do; data.fields names fields that "
                     "are called otherwise",
                     run->train[0]);
}

mics_status mics_job_samples(mics_job *job, int64_t count,
                             void (*show)(void *ctx, const mics_job_sample *sample), void *ctx)
{
    const mics_run *run = job->run;
    mics_chats *chats = NULL;
    mics_status status = MICS_OK;
    bool exported = false;
    showing self = {.memory = job->memory,
                    .pairs = run->preference.kind != MICS_PREFERENCE_NONE,
                    .left = count,
                    .show = show,
                    .ctx = ctx};
    if (!run->rows)
        return fail_texts(job->memory, run);
    MICS_TRY(run_job_find_bytes(job, &exported));
    MICS_TRY_OUT(mics_tokenizer_open(job->memory, run->tokenizer, &job->tokenizer));
    self.tokenizer = job->tokenizer;
    MICS_TRY_OUT(run_rows_open(job->memory, run, job->tokenizer, &chats));
    self.chats = chats;
    const mics_chat_columns columns = run_rows_columns(run);
    const mics_rows_spec rows = {run->train, run->train_count, columns.names, run->skip_bad_lines};
    MICS_TRY_OUT(mics_rows_walk(job->memory, &rows, show_row, &self));
out:
    mics_chats_close(chats);
    return status;
}
