// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The first rows of a run's data as the tokens that would train.
#include "base/free.h"
#include "io/data/chats/chats.h"
#include "io/data/rows.h"
#include "job.h"
#include "mics/log.h"
#include "run/rows.h"

typedef struct showing {
    mics_memory *memory;
    const mics_tokenizer *tokenizer;
    const mics_chats *chats;
    mics_encoder encoder;
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

static mics_status show_tokens(const showing *self, const char *name, mics_token_list *list)
{
    bool *counts = NULL;
    part *parts = NULL;
    mics_status status = MICS_OK;
    mics_job_sample sample = {.name = name, .tokens = list->tokens, .count = list->count};
    MICS_TRY_OUT(MICS_NEW(self->memory, list->count + 1, &counts));
    MICS_TRY_OUT(MICS_NEW(self->memory, list->count + 1, &parts));
    for (int64_t i = 0; i < list->count; i++) {
        counts[i] = i > 0 && (list->tokens[i] & MICS_SAMPLE_COUNTS) != 0;
        list->tokens[i] >>= MICS_SAMPLE_SHIFT;
    }
    sample.counts = counts;
    sample.parts = parts;
    MICS_TRY_OUT(make_parts(self, &sample, parts, &sample.part_count));
    self->show(self->ctx, &sample);
out:
    for (int64_t i = 0; parts != NULL && i < list->count; i++)
        mics_free(self->memory, (char *)parts[i].text);
    MICS_FREE_ALL(self->memory, counts, parts);
    return status;
}

static mics_status show_row(void *ctx, mics_row *row)
{
    showing *self = ctx;
    mics_token_list list = {.memory = self->memory};
    int64_t named = 0;
    mics_status status =
        mics_chats_encode(self->chats, &self->encoder, row->name, row->value, &list, &named);
    if (status == MICS_OK)
        status = show_tokens(self, row->name, &list);
    mics_token_list_fini(&list);
    row->last = --self->left <= 0;
    return status;
}

mics_status mics_job_samples(mics_job *job, int64_t count,
                             void (*show)(void *ctx, const mics_job_sample *sample), void *ctx)
{
    const mics_run *run = job->run;
    mics_chats *chats = NULL;
    mics_status status = MICS_OK;
    showing self = {.memory = job->memory, .left = count, .show = show, .ctx = ctx};
    if (!run->rows)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: is read as texts, and not as chats or prompts and completions, whose "
                         "tokens count or do not: of a text all do",
                         run->train[0]);
    MICS_TRY_OUT(mics_tokenizer_open(job->memory, run->tokenizer, &job->tokenizer));
    self.tokenizer = job->tokenizer;
    MICS_TRY_OUT(run_rows_open(job->memory, run, job->tokenizer, &chats));
    self.chats = chats;
    MICS_TRY_OUT(mics_encoder_open(job->tokenizer, true, &self.encoder));
    const mics_chat_columns columns = mics_chats_columns(mics_chats_spec_of(chats));
    MICS_TRY_OUT(mics_rows_walk(job->memory, run->train, run->train_count, columns.names, show_row,
                                &self));
out:
    if (self.encoder.tokenizer != NULL)
        mics_encoder_fini(&self.encoder);
    mics_chats_close(chats);
    return status;
}
