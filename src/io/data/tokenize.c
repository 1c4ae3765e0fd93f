// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A file of text becomes batches, which several threads make tokens of and one writes in order.
//
// A text goes through a window that slides: the encoder cuts into pieces what later text cannot
// change, the rest moves to the front, and the file fills the window up again. The pieces of a
// window are a batch: merging them is most of the work. Of files of several texts whole records (lines
// of JSON Lines, rows of a table) are one, up to the bytes of a window or a single longer record. So batches depend on the file alone, and a shard that was begun is gone on with by
// passing over as many batches as are written.
#include "io/data/tokenize.h"
#include "base/clock.h"
#include "base/size.h"
#include "io/data/chats/chat.h"
#include "io/data/ordered.h"
#include "io/data/records.h"
#include "io/data/tokenizer/tokenizer.h"
#include "mics/log.h"
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    MAX_WINDOW = 4 << 20,   // a piece of this length takes 176 MiB to merge
    MAX_RECORD = 256 << 20, // bytes of a line of JSON
    MAX_THREADS = 256,
    MAX_NAMED = 10,        // bad records of a file that have a line of their own
    ALONE_BYTES = 1 << 20, // a file of so many is not worth threads
    PROGRESS_EVERY_US = 5000000,
    // A mark is set when so much time has passed, or an eighth of what the file took so far.
    MARK_AFTER_US = 4000000,
    MARK_SHARE = 8
};

// What a thread makes tokens of at once.
typedef struct batch {
    mics_buffer records;   // whole ones
    mics_buffer space;     // for the text of one
    mics_pieces pieces;    // of a text
    int64_t first_line;    // lines before `records`
    bool first;            // of the file
    bool of_records, done; // done: the tokens are there already
    mics_token_list tokens;
    int64_t texts; // that are not empty
    mics_shard_notes notes;
    int64_t bad_line; // of the first one that was passed over
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
    mics_records records;    // what they are; of one text nothing
    _Atomic int32_t *named;  // bad records that had a line of their own
    int64_t lines;           // of records, read
    char last;               // byte of these that is no white space
    size_t searched;         // of the window for special tokens
    uint64_t met;            // batches of the file so far
    mics_shard_mark written; // what is in the shard
    uint64_t passed;         // batches that were there at the start
    bool has_text;
    double begun_us, marked_us;
} tokenizing;

// The field that holds a text; NULL: rows are whole.
static const char *field_of(const mics_corpus_spec *spec)
{
    if (spec->chats != NULL)
        return NULL;
    return spec->text_field != NULL ? spec->text_field : "text";
}

// Templates write special tokens.
static bool takes_specials(const mics_corpus_spec *spec)
{
    return spec->special_tokens || spec->chats != NULL;
}

uint64_t mics_tokenize_identity(const mics_corpus_spec *spec, const mics_reader *reader)
{
    enum { VERSION = 1 }; // changes with what is made of the same file
    const mics_content content = reader->content;
    const char *packing = mics_reader_packing(reader->path);
    const char *field = field_of(spec);
    const bool several = content.kind != MICS_TEXT_PLAIN && spec->chats == NULL;
    const uint64_t how[] = {VERSION, (uint64_t)content.kind, spec->special_tokens,
                            content.kind != MICS_TEXT_PLAIN && spec->skip_bad_lines > 0};
    uint64_t identity = XXH3_64bits_withSeed(how, sizeof how, spec->tokenizer->identity);
    if (packing[0] != '\0')
        identity = XXH3_64bits_withSeed(packing, strlen(packing), identity);
    if (spec->chats != NULL)
        identity ^= mics_chats_identity(spec->chats);
    return several ? XXH3_64bits_withSeed(field, strlen(field), identity) : identity;
}

// ---- records ----

static void note_special(mics_shard_notes *notes, int32_t token)
{
    int32_t at = 0;
    while (at < MICS_SHARD_SPLIT - 1 && notes->split[at].count > 0 &&
           notes->split[at].token != token)
        at++;
    notes->split[at].token = token; // of more kinds than there is space for, the last one met
    notes->split[at].count++;
}

// Notes special tokens that a text names before `limit`, and that become plain text. Returns where
// the search goes on.
static size_t note_specials(const mics_corpus_spec *spec, const char *text, size_t bytes, size_t at,
                            size_t limit, mics_shard_notes *notes)
{
    int32_t token = 0;
    while (!spec->special_tokens && at < limit &&
           (token = mics_tokenizer_next_special(spec->tokenizer, text, bytes, limit, &at)) >= 0)
        note_special(notes, token);
    return at;
}

// Appends the tokens of one text: it does not depend on the one before.
static mics_status encode_text(const tokenizing *self, mics_encoder *encoder, const char *text,
                               size_t bytes, batch *of)
{
    size_t consumed = 0;
    if (bytes == 0)
        return MICS_OK;
    of->texts++;
    (void)note_specials(self->spec, text, bytes, 0, bytes, &of->notes);
    MICS_TRY(mics_token_list_append(&of->tokens, self->around.before, self->around.before_count));
    MICS_TRY(mics_encoder_reset(encoder));
    MICS_TRY(mics_encoder_feed(encoder, text, bytes, false, &of->tokens, &consumed));
    return mics_token_list_append(&of->tokens, self->around.after, self->around.after_count);
}

// Appends the tokens of a row of a chat.
static mics_status encode_row(const tokenizing *self, mics_encoder *encoder, int64_t line,
                              const mics_record *record, batch *of)
{
    char name[MICS_RECORD_NAME];
    if (record->json == NULL) // a blank line
        return MICS_OK;
    mics_records_name(&self->records, line, name, sizeof name);
    MICS_TRY(mics_chats_encode(self->spec->chats, encoder, name, mics_json_root(record->json),
                               &of->tokens, &of->notes));
    of->texts++;
    return MICS_OK;
}

static mics_status check_utf8(const tokenizing *self, int64_t line, const char *text, size_t bytes)
{
    char name[MICS_RECORD_NAME];
    mics_records_name(&self->records, line, name, sizeof name);
    return mics_tokenizer_check(self->spec->tokenizer, name, text, bytes);
}

static mics_status encode_record(const tokenizing *self, mics_encoder *encoder, const char *from,
                                 size_t bytes, int64_t line, bool first, batch *of)
{
    mics_record record = {0};
    mics_status status =
        mics_record_read(&self->records, from, bytes, line, first, &of->space, &record);
    if (status == MICS_OK && self->spec->chats != NULL)
        status = encode_row(self, encoder, line, &record, of);
    if (status == MICS_OK && record.text != NULL && record.json == NULL)
        status = check_utf8(self, line, record.text, record.bytes);
    if (status == MICS_OK && record.text != NULL)
        status = encode_text(self, encoder, record.text, record.bytes, of);
    mics_record_fini(&record);
    return status;
}

// The same; one that is bad, and may be, has no tokens.
static mics_status try_record(const tokenizing *self, mics_encoder *encoder, const char *from,
                              size_t bytes, int64_t line, bool first, batch *of)
{
    if (self->spec->skip_bad_lines == 0)
        return encode_record(self, encoder, from, bytes, line, first, of);
    bool (*const keep_down)(bool on) = *self->named < MAX_NAMED ? mics_log_demote : mics_log_mute;
    const bool before = keep_down(true);
    const int64_t tokens = of->tokens.count;
    const mics_status status = encode_record(self, encoder, from, bytes, line, first, of);
    keep_down(before);
    if (status != MICS_ERR_FORMAT && status != MICS_ERR_INVALID)
        return status;
    ++*self->named;
    of->tokens.count = tokens;
    of->bad_line = of->notes.skipped++ == 0 ? line : of->bad_line;
    return MICS_OK;
}

static mics_status encode_records(const tokenizing *self, mics_encoder *encoder, batch *of)
{
    mics_status status = MICS_OK;
    int64_t line = of->first_line;
    for (size_t at = 0; at < of->records.bytes && status == MICS_OK;) {
        const char *from = of->records.data + at;
        const size_t bytes = mics_records_next(&self->records, from, of->records.bytes - at, true);
        status = try_record(self, encoder, from, bytes, line + 1, of->first && at == 0, of);
        line += mics_records_lines(from, bytes);
        at += bytes;
    }
    return status;
}

// ---- batches ----

// On one of the threads.
static void encode_batch(void *ctx, int32_t thread, int32_t slot)
{
    const tokenizing *self = ctx;
    batch *of = &self->batches[slot];
    if (of->done)
        return;
    of->status = of->of_records
                     ? encode_records(self, &self->encoders[thread], of)
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
    mics_log(MICS_LOG_INFO, "%s %s: %s%s of %s, %.1f MB/s, %.0f s left",
             self->spec->lines ? "counting words of" : "tokenizing", reader->path, file,
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

// A slot does not keep what only a record longer than the window needs.
static void release_long(batch *of)
{
    if (of->records.bytes <= MICS_TEXT_WINDOW_BYTES)
        return;
    mics_buffer_fini(&of->records);
    mics_buffer_fini(&of->space);
    mics_token_list_fini(&of->tokens);
}

static mics_status take_notes(tokenizing *self, const batch *of)
{
    const int64_t most = self->spec->skip_bad_lines;
    mics_shard_notes *notes = &self->writer->notes;
    mics_shard_notes_add(notes, &of->notes);
    if (of->notes.skipped == 0 || self->progress->skipped + notes->skipped <= (uint64_t)most)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: has a bad line, number %" PRId64 ", beyond the %" PRId64
                     " that data.skip_bad_lines passes over; mend the file, or allow more",
                     self->window->reader.path, of->bad_line, most);
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
    MICS_TRY(take_notes(self, of));
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
    next->records.bytes = next->pieces.text.bytes = 0;
    next->pieces.parts.count = next->tokens.count = 0;
    next->texts = next->bad_line = 0;
    next->notes = (mics_shard_notes){0};
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
    return mics_encoder_feed(&self->cutter, self->window->bytes, self->window->checked, more,
                             &into->tokens, consumed_out);
}

// One round: fill the window, and cut what is certain.
static mics_status advance(tokenizing *self)
{
    mics_text_window *window = self->window;
    size_t consumed = 0;
    batch *next = NULL;
    MICS_TRY(next_batch(self, &next));
    next->of_records = false;
    next->done = !mics_encoder_cuts(self->spec->tokenizer);
    MICS_TRY(mics_text_window_fill(window));
    MICS_TRY(mics_text_window_check(window, self->spec->tokenizer->ops->any_bytes));
    MICS_TRY(cut(self, next, !window->ended, &consumed));
    if (consumed == 0 && !window->ended && window->capacity < MAX_WINDOW)
        MICS_TRY(mics_text_window_widen(window));
    else if (consumed == 0 && !window->ended)
        MICS_TRY(cut(self, next, false, &consumed));
    self->has_text |= consumed > 0;
    const size_t searched = note_specials(self->spec, window->bytes, window->filled, self->searched,
                                          consumed, &next->notes);
    self->searched = searched > consumed ? searched - consumed : 0;
    mics_text_window_drop(window, consumed);
    give_batch(self);
    return MICS_OK;
}

static mics_status tokenize_text(tokenizing *self)
{
    if (self->passed == 0)
        MICS_TRY(mics_shard_append(self->writer, self->around.before, self->around.before_count));
    MICS_TRY(mics_encoder_open(self->spec->tokenizer, takes_specials(self->spec), &self->cutter));
    while (!self->window->ended)
        MICS_TRY(advance(self));
    MICS_TRY(write_all(self));
    return mics_shard_append(self->writer, self->around.after, self->around.after_count);
}

// ---- the records of a file ----

// Bytes of the whole records behind the window's first `from`, as many as make a batch; at the
// file's end also the last one. A record that is longer is a batch by itself.
static size_t whole_records(const tokenizing *self, size_t from)
{
    const mics_text_window *window = self->window;
    size_t at = from;
    while (at < window->filled) {
        const size_t bytes = mics_records_next(&self->records, window->bytes + at,
                                               window->filled - at, window->ended);
        if (bytes == 0 || (at > from && at + bytes - from > MICS_TEXT_WINDOW_BYTES))
            break;
        at += bytes;
    }
    return at - from;
}

static mics_status give_records(tokenizing *self, const char *records, size_t bytes)
{
    batch *next = NULL;
    MICS_TRY(next_batch(self, &next));
    next->of_records = true;
    next->done = false;
    next->first = self->met == 0;
    next->first_line = self->lines;
    if (self->met >= self->passed)
        MICS_TRY(mics_buffer_append(&next->records, records, bytes));
    self->lines += mics_records_lines(records, bytes);
    for (size_t at = bytes; at > 0; at--) {
        if (strchr(" \t\r\n", records[at - 1]) == NULL) {
            self->last = records[at - 1];
            break;
        }
    }
    give_batch(self);
    return MICS_OK;
}

static mics_status widen_for_record(const tokenizing *self)
{
    mics_text_window *window = self->window;
    if (window->capacity >= MAX_RECORD)
        return mics_fail(MICS_ERR_FORMAT, "%s, line %" PRId64 ": has more than %d MiB%s",
                         window->reader.path, self->lines + 1, MAX_RECORD >> 20,
                         window->reader.content.kind >= MICS_TEXT_CSV
                             ? " in one row; is a quote in it not closed?"
                             : "");
    return mics_text_window_widen(window);
}

// Gives all whole records of the window, which is as wide as the longest only while that is there.
static mics_status advance_records(tokenizing *self)
{
    mics_text_window *window = self->window;
    size_t given = 0;
    for (size_t bytes = 0; (bytes = whole_records(self, given)) > 0; given += bytes)
        MICS_TRY(give_records(self, window->bytes + given, bytes));
    if (given == 0 && window->filled == window->capacity)
        return widen_for_record(self);
    mics_text_window_drop(window, given);
    return mics_text_window_narrow(window);
}

// Takes a table's first row, however long, and the blank lines before it.
static mics_status take_header(tokenizing *self)
{
    mics_text_window *window = self->window;
    size_t bytes = 0;
    MICS_TRY(mics_text_window_fill(window));
    while (window->filled > bytes && strchr("\r\n", window->bytes[bytes]) != NULL)
        bytes++;
    self->lines = mics_records_lines(window->bytes, bytes);
    mics_text_window_drop(window, bytes);
    while (window->filled > 0 && (bytes = mics_records_next(&self->records, window->bytes,
                                                            window->filled, window->ended)) == 0) {
        MICS_TRY(widen_for_record(self));
        MICS_TRY(mics_text_window_fill(window));
    }
    bytes = window->filled > 0 ? bytes : 0;
    self->lines += mics_records_lines(window->bytes, bytes);
    MICS_TRY(mics_records_read_header(&self->records, window->bytes, bytes));
    mics_text_window_drop(window, bytes);
    return advance_records(self);
}

static mics_status tokenize_records(tokenizing *self)
{
    const mics_text_kind kind = self->records.kind;
    if (kind == MICS_TEXT_CSV || kind == MICS_TEXT_TSV)
        MICS_TRY(take_header(self));
    while (!self->window->ended) {
        MICS_TRY(mics_text_window_fill(self->window));
        MICS_TRY(advance_records(self));
    }
    MICS_TRY(write_all(self));
    if (kind != MICS_TEXT_ARRAY || self->last == ']')
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: the array has no end, a \"]\", in line %" PRId64 "; is the file cut "
                     "short?",
                     self->window->reader.path, self->lines + 1);
}

// ---- a file ----

// What stands before the tokens of a text, and behind them.
static mics_status surroundings(const mics_tokenizer *tokenizer, mics_token_frame *frame_out)
{
    *frame_out = (mics_token_frame){.before = &tokenizer->separator,
                                    .before_count = tokenizer->separator >= 0 ? 1 : 0};
    return tokenizer->frames_texts ? mics_tokenizer_frame(tokenizer, frame_out) : MICS_OK;
}

// As many as asked for, or where that is below 1 as this process has cores.
static int32_t threads_of(int32_t asked)
{
    cpu_set_t cores;
    if (asked < 1)
        asked = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    return asked < 1 ? 1 : asked > MAX_THREADS ? MAX_THREADS : asked;
}

static bool of_records(const mics_corpus_spec *spec, const mics_reader *reader)
{
    return spec->lines || reader->content.kind != MICS_TEXT_PLAIN;
}

static bool is_worth_threads(const tokenizing *self)
{
    const mics_reader *reader = &self->window->reader;
    return (reader->bytes > ALONE_BYTES || reader->unpacker != NULL) &&
           (of_records(self->spec, reader) || mics_encoder_cuts(self->spec->tokenizer));
}

static mics_status start(tokenizing *self)
{
    const mics_ordered_jobs jobs = {.ctx = self, .work = encode_batch};
    self->threads = is_worth_threads(self) ? threads_of(self->spec->threads) : 1;
    MICS_TRY(MICS_NEW(self->memory, self->threads, &self->encoders));
    for (int32_t i = 0; i < self->threads; i++)
        MICS_TRY(mics_encoder_open(self->spec->tokenizer, takes_specials(self->spec),
                                   &self->encoders[i]));
    MICS_TRY(MICS_NEW(self->memory, mics_ordered_slots(self->threads), &self->batches));
    for (; self->slots < mics_ordered_slots(self->threads); self->slots++) {
        batch *of = &self->batches[self->slots];
        of->records.memory = of->space.memory = of->pieces.text.memory = of->pieces.parts.memory =
            of->tokens.memory = self->memory;
    }
    return mics_ordered_open(self->memory, self->threads, jobs, &self->queue);
}

static void stop(tokenizing *self)
{
    mics_ordered_close(self->queue);
    for (int32_t i = 0; i < self->slots; i++) {
        mics_buffer_fini(&self->batches[i].records);
        mics_buffer_fini(&self->batches[i].space);
        mics_pieces_fini(&self->batches[i].pieces);
        mics_token_list_fini(&self->batches[i].tokens);
    }
    for (int32_t i = 0; self->encoders != NULL && i < self->threads; i++)
        mics_encoder_fini(&self->encoders[i]);
    mics_encoder_fini(&self->cutter);
    mics_free(self->memory, self->batches);
    mics_free(self->memory, self->encoders);
}

// Rows of chats are JSON.
static mics_status check_kind(const mics_corpus_spec *spec, const mics_reader *reader)
{
    const mics_text_kind kind = reader->content.kind;
    if (spec->chats == NULL || kind == MICS_TEXT_LINES || kind == MICS_TEXT_ARRAY)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: has no rows of JSON, but other files have chats; give JSON Lines, a "
                     "JSON array or Parquet, or train texts in a run of their own",
                     reader->path);
}

mics_status mics_tokenize(mics_text_window *window, const mics_corpus_spec *spec,
                          mics_shard_writer *writer, mics_shard_mark mark,
                          mics_tokenize_progress *progress, bool *empty_out)
{
    _Atomic int32_t named = 0;
    tokenizing self = {.memory = window->reader.memory,
                       .window = window,
                       .spec = spec,
                       .writer = writer,
                       .progress = progress,
                       .written = mark,
                       .passed = mark.batches,
                       .records = {.memory = window->reader.memory,
                                   .path = window->reader.path,
                                   .field = field_of(spec),
                                   .kind = window->reader.content.kind,
                                   .rows = window->reader.parquet != NULL},
                       .named = &named,
                       .begun_us = mics_clock_us()};
    mics_status status = MICS_OK;
    self.marked_us = self.begun_us;
    progress->file++;
    MICS_TRY_OUT(check_kind(spec, &window->reader));
    MICS_TRY_OUT(surroundings(spec->tokenizer, &self.around));
    MICS_TRY_OUT(start(&self));
    if (window->reader.content.marked)
        MICS_TRY_OUT(mics_text_window_pass(window, MICS_MARK_BYTES));
    status = of_records(spec, &window->reader) ? tokenize_records(&self) : tokenize_text(&self);
out:
    *empty_out = self.written.texts == 0 && !self.has_text;
    stop(&self);
    progress->before += window->reader.bytes;
    return status;
}
