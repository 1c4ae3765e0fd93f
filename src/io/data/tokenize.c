// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A file of text becomes batches, which several threads make tokens of and one writes in order.
//
// A text goes through a window that slides: the encoder cuts into pieces what later text cannot
// change, the rest moves to the front, and the file fills the window up again. The pieces of a
// window are a batch: merging them is most of the work. Of JSON Lines whole lines
// are one, up to the bytes of a window or a single longer line. So batches depend on the file alone, and a shard that was begun is gone on with by
// passing over as many batches as are written.
#include "io/data/tokenize.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/size.h"
#include "io/data/ordered.h"
#include "io/data/tokenizer/tokenizer.h"
#include "mics/log.h"
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    MAX_WINDOW = 4 << 20,   // a piece of this length takes 176 MiB to merge
    MAX_LINE = 256 << 20,   // bytes of a line of JSON
    NAME_BYTES = 4096 + 32, // of "PATH, line N"
    MAX_THREADS = 256,
    ALONE_BYTES = 1 << 20, // a file of so many is not worth threads
    PROGRESS_EVERY_US = 5000000,
    // A mark is set when so much time has passed, or an eighth of what the file took so far.
    MARK_AFTER_US = 4000000,
    MARK_SHARE = 8
};

// What a thread makes tokens of at once.
typedef struct batch {
    mics_buffer lines;   // whole ones, of JSON Lines
    mics_pieces pieces;  // of a text
    int64_t first_line;  // lines before `lines`
    bool is_lines, done; // done: the tokens are there already
    mics_token_list tokens;
    int64_t texts; // that are not empty
    mics_status status;
    char why[2048]; // the error line; "": it was logged
} batch;

typedef struct tokenizing {
    mics_memory *memory;
    mics_text_window *window;
    const mics_corpus_spec *spec;
    mics_shard_writer *writer;
    mics_tokenize_progress *progress;
    mics_token_frame around; // of each text
    mics_encoder cutter;     // of a text
    int32_t threads, slots;
    mics_encoder *encoders; // (threads)
    batch *batches;         // (slots)
    mics_ordered *queue;
    int64_t lines;           // of JSON Lines, read
    uint64_t met;            // batches of the file so far
    mics_shard_mark written; // what is in the shard
    uint64_t passed;         // batches that were there at the start
    bool has_text;
    double begun_us, marked_us;
} tokenizing;

static bool is_json_lines(const char *path)
{
    return mics_reader_ends(path, ".jsonl") || mics_reader_ends(path, ".ndjson") ||
           mics_reader_ends(path, ".json"); // as C4's files are called
}

static const char *field_of(const mics_corpus_spec *spec)
{
    return spec->text_field != NULL ? spec->text_field : "text";
}

uint64_t mics_tokenize_identity(const mics_corpus_spec *spec, const char *path)
{
    uint64_t identity = spec->tokenizer->identity;
    const char *packing = mics_reader_packing(path);
    if (packing[0] != '\0')
        identity = XXH3_64bits_withSeed(packing, strlen(packing), identity);
    if (is_json_lines(path))
        identity = XXH3_64bits_withSeed(field_of(spec), strlen(field_of(spec)), identity);
    return identity;
}

// ---- JSON Lines ----

// The fields that may have been meant: those that hold a text.
static mics_status fail_field(const char *name, const char *field, const mics_json_value *root)
{
    char texts[160] = "";
    size_t used = 0;
    const char *other = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(root, &other)) != NULL) {
        if (mics_json_type_of(value) == MICS_JSON_STRING && used < sizeof texts)
            used += (size_t)snprintf(texts + used, sizeof texts - used, "%s\"%s\"",
                                     used == 0 ? "" : ", ", other);
    }
    return mics_fail(MICS_ERR_INVALID,
                     "%s: has no \"%s\"; name the field that holds its text by --text-field or in "
                     "data.text_field%s%s",
                     name, field, used == 0 ? "" : "; texts are in ", texts);
}

static mics_status find_text(const mics_corpus_spec *spec, const mics_json *json, const char *name,
                             const mics_json_value **text_out)
{
    const char *field = field_of(spec);
    const mics_json_value *root = mics_json_root(json), *value = mics_json_get(root, field);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_FORMAT, "%s: is no JSON object, as each line must be", name);
    if (value == NULL)
        return fail_field(name, field, root);
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return mics_fail(MICS_ERR_INVALID, "%s: \"%s\" is no string", name, field);
    *text_out = value;
    return MICS_OK;
}

// Appends the tokens of one text: it does not depend on the one before.
static mics_status encode_text(const tokenizing *self, mics_encoder *encoder, const char *text,
                               size_t bytes, batch *of)
{
    size_t consumed = 0;
    if (bytes == 0)
        return MICS_OK;
    of->texts++;
    MICS_TRY(mics_token_list_append(&of->tokens, self->around.before, self->around.before_count));
    MICS_TRY(mics_encoder_reset(encoder));
    MICS_TRY(mics_encoder_feed(encoder, text, bytes, false, &of->tokens, &consumed));
    return mics_token_list_append(&of->tokens, self->around.after, self->around.after_count);
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (strchr(" \t\r", line[i]) == NULL || line[i] == '\0')
            return false;
    }
    return true;
}

// `number` counts from 1.
static mics_status encode_line(const tokenizing *self, mics_encoder *encoder, const char *line,
                               size_t bytes, int64_t number, batch *of)
{
    char name[NAME_BYTES];
    mics_json *json = NULL;
    const mics_json_value *text = NULL;
    const size_t mark = number == 1 && bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (is_blank(line + mark, bytes - mark))
        return MICS_OK;
    snprintf(name, sizeof name, "%s, line %" PRId64, self->window->reader.path, number);
    MICS_TRY(mics_json_parse_foreign_line(self->memory, name, line + mark, bytes - mark, &json));
    mics_status status = find_text(self->spec, json, name, &text);
    if (status == MICS_OK)
        status =
            encode_text(self, encoder, mics_json_string(text), mics_json_string_bytes(text), of);
    mics_json_close(json);
    return status;
}

static mics_status encode_lines(const tokenizing *self, mics_encoder *encoder, batch *of)
{
    int64_t number = of->first_line;
    for (size_t at = 0; at < of->lines.bytes;) {
        const char *line = of->lines.data + at, *end = memchr(line, '\n', of->lines.bytes - at);
        const size_t bytes = end != NULL ? (size_t)(end - line) : of->lines.bytes - at;
        MICS_TRY(encode_line(self, encoder, line, bytes, ++number, of));
        at += bytes + (end != NULL);
    }
    return MICS_OK;
}

// ---- batches ----

// On one of the threads.
static void encode_batch(void *ctx, int32_t thread, int32_t slot)
{
    const tokenizing *self = ctx;
    batch *of = &self->batches[slot];
    if (of->done)
        return;
    of->status = of->is_lines
                     ? encode_lines(self, &self->encoders[thread], of)
                     : mics_encoder_merge(&self->encoders[thread], &of->pieces, &of->tokens);
    of->why[0] = '\0';
    if (of->status != MICS_OK)
        (void)mics_log_take(of->why, sizeof of->why);
}

static void show_progress(tokenizing *self)
{
    mics_tokenize_progress *progress = self->progress;
    const mics_reader *reader = &self->window->reader;
    const double now_us = mics_clock_us();
    char done[32], all[32], file[48] = "";
    if (progress->begun_us == 0) {
        progress->begun_us = progress->shown_us = now_us;
        progress->begun_bytes = progress->before + reader->read;
    }
    if (now_us - progress->shown_us < PROGRESS_EVERY_US)
        return;
    const double got = (double)(progress->before + reader->read);
    const double per_us = (got - (double)progress->begun_bytes) / (now_us - progress->begun_us);
    const double left = (double)progress->bytes > got ? (double)progress->bytes - got : 0;
    if (progress->files > 1)
        snprintf(file, sizeof file, "file %" PRId64 " of %" PRId64 ", ", progress->file,
                 progress->files);
    mics_log(MICS_LOG_INFO, "tokenizing %s: %s%s of %s, %.1f MB/s, %.0f s left", reader->path, file,
             mics_size_text(got, done, sizeof done),
             mics_size_text((double)progress->bytes, all, sizeof all), per_us,
             per_us > 0 ? left / per_us * 1e-6 : 0);
    progress->shown_us = now_us;
}

static void set_mark(tokenizing *self)
{
    const double now_us = mics_clock_us(), since_us = now_us - self->marked_us;
    if (!self->writer->kept ||
        (since_us < MARK_AFTER_US && since_us < (now_us - self->begun_us) / MARK_SHARE))
        return;
    mics_shard_set_mark(self->writer, self->written);
    self->marked_us = now_us;
}

// A slot does not keep what only a line longer than the window needs.
static void release_long(batch *of)
{
    if (of->lines.bytes <= MICS_TEXT_WINDOW_BYTES)
        return;
    mics_buffer_fini(&of->lines);
    mics_token_list_fini(&of->tokens);
}

// Writes the tokens of the oldest batch.
static mics_status write_oldest(tokenizing *self)
{
    batch *of = &self->batches[mics_ordered_take(self->queue)];
    if (of->status != MICS_OK)
        return of->why[0] != '\0' ? mics_fail(of->status, "%s", of->why) : of->status;
    MICS_TRY(mics_shard_append(self->writer, of->tokens.tokens, of->tokens.count));
    self->written.batches++;
    self->written.texts += (uint64_t)of->texts;
    release_long(of);
    show_progress(self);
    set_mark(self);
    return MICS_OK;
}

// An empty batch to be filled.
static mics_status next_batch(tokenizing *self, batch **batch_out)
{
    if (mics_ordered_is_full(self->queue))
        MICS_TRY(write_oldest(self));
    batch *next = &self->batches[mics_ordered_next(self->queue)];
    next->lines.bytes = next->pieces.text.bytes = 0;
    next->pieces.parts.count = next->tokens.count = 0;
    next->texts = 0;
    next->status = MICS_OK;
    *batch_out = next;
    return MICS_OK;
}

// Gives it to a thread, unless its tokens are in the shard already.
static void give_batch(tokenizing *self)
{
    if (self->met++ >= self->passed)
        mics_ordered_give(self->queue);
}

static mics_status write_all(tokenizing *self)
{
    while (!mics_ordered_is_empty(self->queue))
        MICS_TRY(write_oldest(self));
    return MICS_OK;
}

// ---- one text ----

// Makes pieces of the head of the window; `more`: of what later text cannot change.
static mics_status cut(tokenizing *self, batch *into, bool more, size_t *consumed_out)
{
    self->cutter.pieces = into->done ? NULL : &into->pieces;
    return mics_encoder_feed(&self->cutter, self->window->bytes, self->window->filled, more,
                             &into->tokens, consumed_out);
}

// One round: fill the window, and cut what is certain.
static mics_status advance(tokenizing *self)
{
    mics_text_window *window = self->window;
    size_t consumed = 0;
    batch *next = NULL;
    MICS_TRY(next_batch(self, &next));
    next->is_lines = false;
    next->done = !mics_encoder_cuts(self->spec->tokenizer);
    MICS_TRY(mics_text_window_fill(window));
    MICS_TRY(cut(self, next, !window->ended, &consumed));
    if (consumed == 0 && !window->ended && window->capacity < MAX_WINDOW)
        MICS_TRY(mics_text_window_widen(window));
    else if (consumed == 0 && !window->ended)
        MICS_TRY(cut(self, next, false, &consumed));
    self->has_text |= consumed > 0;
    mics_text_window_drop(window, consumed);
    give_batch(self);
    return MICS_OK;
}

static mics_status tokenize_text(tokenizing *self)
{
    if (self->passed == 0)
        MICS_TRY(mics_shard_append(self->writer, self->around.before, self->around.before_count));
    MICS_TRY(mics_encoder_open(self->spec->tokenizer, false, &self->cutter));
    while (!self->window->ended)
        MICS_TRY(advance(self));
    MICS_TRY(write_all(self));
    return mics_shard_append(self->writer, self->around.after, self->around.after_count);
}

// ---- the lines of a file ----

// Bytes of the whole lines behind the window's first `from`, as many as make a batch, and how many
// lines that is; at the file's end also the last one. A line that is longer is a batch by itself.
static size_t whole_lines(const mics_text_window *window, size_t from, int64_t *lines_out)
{
    size_t at = from;
    *lines_out = 0;
    while (at < window->filled) {
        const char *end = memchr(window->bytes + at, '\n', window->filled - at);
        if (end == NULL && !window->ended)
            break;
        const size_t next = end != NULL ? (size_t)(end - window->bytes) + 1 : window->filled;
        if (at > from && next - from > MICS_TEXT_WINDOW_BYTES)
            break;
        at = next;
        ++*lines_out;
    }
    return at - from;
}

static mics_status give_lines(tokenizing *self, const char *lines, size_t bytes, int64_t count)
{
    batch *next = NULL;
    MICS_TRY(next_batch(self, &next));
    next->is_lines = true;
    next->done = false;
    next->first_line = self->lines;
    if (self->met >= self->passed)
        MICS_TRY(mics_buffer_append(&next->lines, lines, bytes));
    self->lines += count;
    give_batch(self);
    return MICS_OK;
}

static mics_status widen_for_line(const tokenizing *self)
{
    mics_text_window *window = self->window;
    if (window->capacity >= MAX_LINE)
        return mics_fail(MICS_ERR_FORMAT, "%s, line %" PRId64 ": has more than %d MiB",
                         window->reader.path, self->lines + 1, MAX_LINE >> 20);
    return mics_text_window_widen(window);
}

// Gives all whole lines of the window, which is as wide as the longest line only while that is there.
static mics_status advance_lines(tokenizing *self)
{
    mics_text_window *window = self->window;
    int64_t lines = 0;
    size_t given = 0;
    for (size_t bytes = 0; (bytes = whole_lines(window, given, &lines)) > 0; given += bytes)
        MICS_TRY(give_lines(self, window->bytes + given, bytes, lines));
    if (given == 0 && window->filled == window->capacity)
        return widen_for_line(self);
    mics_text_window_drop(window, given);
    return mics_text_window_narrow(window);
}

static mics_status tokenize_lines(tokenizing *self)
{
    while (!self->window->ended) {
        MICS_TRY(mics_text_window_fill(self->window));
        MICS_TRY(advance_lines(self));
    }
    return write_all(self);
}

// ---- a file ----

// What stands before the tokens of a text, and behind them.
static mics_status surroundings(const mics_tokenizer *tokenizer, mics_token_frame *frame_out)
{
    if (tokenizer->frames_texts)
        return mics_tokenizer_frame(tokenizer, frame_out);
    *frame_out = (mics_token_frame){.before = &tokenizer->separator,
                                    .before_count = tokenizer->separator >= 0 ? 1 : 0};
    return MICS_OK;
}

// As many as asked for, or where that is below 1 as many as there are cores for this process.
static int32_t threads_of(int32_t asked)
{
    cpu_set_t cores;
    if (asked < 1)
        asked = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return asked < 1 ? 1 : asked > MAX_THREADS ? MAX_THREADS : asked;
}

static bool is_worth_threads(const tokenizing *self)
{
    const mics_reader *reader = &self->window->reader;
    if (reader->bytes <= ALONE_BYTES && reader->unpacker == NULL)
        return false;
    return is_json_lines(reader->path) || mics_encoder_cuts(self->spec->tokenizer);
}

static mics_status start(tokenizing *self)
{
    const mics_ordered_jobs jobs = {.ctx = self, .work = encode_batch};
    self->threads = is_worth_threads(self) ? threads_of(self->spec->threads) : 1;
    MICS_TRY(MICS_NEW(self->memory, self->threads, &self->encoders));
    for (int32_t i = 0; i < self->threads; i++)
        MICS_TRY(mics_encoder_open(self->spec->tokenizer, false, &self->encoders[i]));
    MICS_TRY(MICS_NEW(self->memory, mics_ordered_slots(self->threads), &self->batches));
    for (; self->slots < mics_ordered_slots(self->threads); self->slots++) {
        batch *of = &self->batches[self->slots];
        of->lines.memory = of->pieces.text.memory = of->pieces.parts.memory = of->tokens.memory =
            self->memory;
    }
    return mics_ordered_open(self->memory, self->threads, jobs, &self->queue);
}

static void stop(tokenizing *self)
{
    mics_ordered_close(self->queue);
    for (int32_t i = 0; i < self->slots; i++) {
        mics_buffer_fini(&self->batches[i].lines);
        mics_pieces_fini(&self->batches[i].pieces);
        mics_token_list_fini(&self->batches[i].tokens);
    }
    for (int32_t i = 0; self->encoders != NULL && i < self->threads; i++)
        mics_encoder_fini(&self->encoders[i]);
    mics_encoder_fini(&self->cutter);
    mics_free(self->memory, self->batches);
    mics_free(self->memory, self->encoders);
}

mics_status mics_tokenize(mics_text_window *window, const mics_corpus_spec *spec,
                          mics_shard_writer *writer, mics_shard_mark mark,
                          mics_tokenize_progress *progress, bool *empty_out)
{
    tokenizing self = {.memory = window->reader.memory,
                       .window = window,
                       .spec = spec,
                       .writer = writer,
                       .progress = progress,
                       .written = mark,
                       .passed = mark.batches,
                       .begun_us = mics_clock_us()};
    self.marked_us = self.begun_us;
    progress->file++;
    mics_status status = surroundings(spec->tokenizer, &self.around);
    if (status == MICS_OK)
        status = start(&self);
    if (status == MICS_OK)
        status = is_json_lines(window->reader.path) ? tokenize_lines(&self) : tokenize_text(&self);
    *empty_out = self.written.texts == 0 && !self.has_text;
    stop(&self);
    progress->before += window->reader.bytes;
    return status;
}
