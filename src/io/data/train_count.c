// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The texts of files go to a tokenizer that gives no tokens but counts what it cuts them into. Each
// thread has a table of its own, which now and then is added to a common one.
#include "io/data/files.h"
#include "io/data/tokenize.h"
#include "io/data/tokenizer/split.h"
#include "io/data/tokenizer/split_known.h"
#include "io/data/tokenizer/tokenizer.h"
#include "io/data/train.h"
#include <pthread.h>

typedef struct counting {
    mics_chars chars;
    mics_split *split;
    pthread_mutex_t mutex; // guards what follows
    mics_words *words;
    mics_status status;
} counting;

typedef struct counter {
    counting *to;
    mics_split_work *split;
    mics_words words;
} counter;

static mics_status count_word(void *ctx, const char *text, size_t bytes)
{
    mics_word *same = NULL;
    return mics_words_add(ctx, text, bytes, 1, &same);
}

static mics_status hand_over(counter *self)
{
    counting *to = self->to;
    mics_word *same = NULL;
    pthread_mutex_lock(&to->mutex);
    for (int64_t i = 0; i < self->words.count && to->status == MICS_OK; i++) {
        const mics_word *word = &self->words.items[i];
        to->status = mics_words_add(to->words, self->words.text.data + word->begin, word->bytes,
                                    word->count, &same);
    }
    const mics_status status = to->status;
    pthread_mutex_unlock(&to->mutex);
    mics_words_fini(&self->words);
    return status;
}

static mics_status counter_feed(mics_encoder *encoder, const char *text, size_t bytes, bool more,
                                mics_token_list *list, size_t *consumed_out)
{
    enum { MOST = 1 << 16 }; // words of a thread's table
    counter *self = encoder->work;
    const mics_split_part part = {
        .text = text, .bytes = bytes, .head = true, .first = true, .more = more};
    const mics_split_sink sink = {.piece = count_word, .ctx = &self->words};
    (void)list;
    *consumed_out = bytes;
    MICS_TRY(mics_split_feed(self->split, &part, sink));
    return self->words.count < MOST ? MICS_OK : hand_over(self);
}

static mics_status counter_open(const mics_tokenizer *tokenizer, void **work_out)
{
    counting *to = tokenizer->ctx;
    counter *self = NULL;
    MICS_TRY(MICS_NEW(tokenizer->memory, 1, &self));
    self->to = to;
    self->words.text.memory = tokenizer->memory;
    const mics_status status = mics_split_work_open(to->split, &self->split);
    if (status != MICS_OK)
        mics_free(tokenizer->memory, self);
    else
        *work_out = self;
    return status;
}

static mics_status counter_reset(void *work)
{
    (void)work; // a text is split to its end
    return MICS_OK;
}

static void counter_close(void *work)
{
    counter *self = work;
    mics_memory *memory = self->words.text.memory;
    (void)hand_over(self); // a failure is kept
    mics_split_work_close(self->split);
    mics_free(memory, self);
}

static const mics_tokenizer_ops counter_ops = {
    .name = "counter",
    .feed = counter_feed,
    .work_open = counter_open,
    .work_reset = counter_reset,
    .work_close = counter_close,
};

static mics_status count_file(mics_memory *memory, const mics_corpus_spec *spec, const char *path,
                              mics_tokenize_progress *progress)
{
    const char *const columns[] = {spec->text_field != NULL ? spec->text_field : "text", NULL};
    mics_text_window window;
    mics_shard_writer *nothing = NULL;
    bool empty = false;
    mics_status status = MICS_NEW(memory, 1, &nothing);
    MICS_TRY(status);
    MICS_TRY_OUT(mics_text_window_open(memory, path, &window));
    if (window.reader.bytes > 0) {
        MICS_TRY_OUT(mics_reader_find_content(&window.reader, columns));
        MICS_TRY_OUT(mics_text_window_rewind(&window, 0));
        MICS_TRY_OUT(mics_tokenize(&window, spec, nothing, (mics_shard_mark){0}, progress, &empty));
    }
    progress->skipped += nothing->notes.skipped;
    if (nothing->notes.skipped > 0)
        mics_log(MICS_LOG_WARNING, "%s: %llu bad lines are passed over", path,
                 (unsigned long long)nothing->notes.skipped);
    if (empty || window.reader.bytes == 0)
        mics_log(MICS_LOG_WARNING, "%s: has no text, and is left out", path);
out:
    mics_text_window_close(&window);
    mics_free(memory, nothing);
    return status;
}

mics_status mics_train_count(mics_memory *memory, const mics_corpus_spec *spec, mics_words *words)
{
    counting self = {.chars.memory = memory, .words = words};
    mics_tokenizer counts = {
        .memory = memory, .ops = &counter_ops, .ctx = &self, .separator = -1, .mask = -1};
    mics_corpus_spec all = *spec;
    mics_files files = {.memory = memory};
    mics_tokenize_progress progress = {0};
    mics_status status = MICS_OK;
    all.tokenizer = &counts;
    all.lines = true;
    pthread_mutex_init(&self.mutex, NULL);
    for (int32_t i = 0; i < spec->pattern_count; i++)
        MICS_TRY_OUT(mics_files_add(&files, spec->patterns[i], i));
    for (int64_t i = 0; i < files.count; i++)
        progress.bytes += mics_files_bytes(files.items[i].path);
    progress.files = files.count;
    MICS_TRY_OUT(mics_chars_init(memory, &self.chars));
    MICS_TRY_OUT(mics_split_open(memory, &self.chars, &self.split));
    MICS_TRY_OUT(mics_split_add_pattern(self.split, "GPT-2's pattern", MICS_SPLIT_GPT2,
                                        MICS_SPLIT_ISOLATED, false));
    for (int64_t i = 0; i < files.count; i++)
        MICS_TRY_OUT(count_file(memory, &all, files.items[i].path, &progress));
    status = self.status;
out:
    pthread_mutex_destroy(&self.mutex);
    mics_split_close(self.split);
    mics_chars_fini(&self.chars);
    mics_files_fini(&files);
    return status;
}
