// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A text goes through a window that slides: the encoder consumes what later text cannot change, the
// rest moves to the front, and the file fills the window up again. Of JSON Lines the window holds
// whole lines.
#include "io/data/tokenize.h"
#include "io/data/tokenizer.h"
#include "mics/json.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

enum {
    MAX_WINDOW = 4 << 20,  // a piece of this length takes 176 MiB to merge
    MAX_LINE = 256 << 20,  // bytes of a line of JSON
    NAME_BYTES = 4096 + 32 // of "PATH, line N"
};

typedef struct tokenizing {
    mics_text_window *window;
    const mics_corpus_spec *spec;
    mics_shard_writer *writer;
    mics_encoder encoder;
    mics_token_list list;
    mics_token_frame around; // of each text
    int64_t line, texts;     // of JSON Lines: read; not empty
} tokenizing;

static bool is_json_lines(const char *path)
{
    return mics_reader_ends(path, ".jsonl") || mics_reader_ends(path, ".ndjson");
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

// ---- one text ----

// One round: fill the window, tokenize what is certain, write its tokens.
static mics_status advance(tokenizing *self)
{
    mics_text_window *window = self->window;
    mics_token_list *list = &self->list;
    size_t consumed = 0;
    MICS_TRY(mics_text_window_fill(window));
    list->count = 0;
    MICS_TRY(mics_encoder_feed(&self->encoder, window->bytes, window->filled, !window->ended, list,
                               &consumed));
    if (consumed == 0 && !window->ended && window->capacity < MAX_WINDOW)
        MICS_TRY(mics_text_window_widen(window));
    else if (consumed == 0 && !window->ended)
        MICS_TRY(mics_encoder_feed(&self->encoder, window->bytes, window->filled, false, list,
                                   &consumed));
    self->texts |= consumed > 0;
    mics_text_window_drop(window, consumed);
    return mics_shard_append(self->writer, list->tokens, list->count);
}

static mics_status tokenize_text(tokenizing *self)
{
    MICS_TRY(mics_shard_append(self->writer, self->around.before, self->around.before_count));
    MICS_TRY(mics_encoder_open(self->spec->tokenizer, false, &self->encoder));
    while (!self->window->ended)
        MICS_TRY(advance(self));
    return mics_shard_append(self->writer, self->around.after, self->around.after_count);
}

// ---- JSON Lines ----

static mics_status find_text(const tokenizing *self, const mics_json *json, const char *name,
                             const mics_json_value **text_out)
{
    const char *field = field_of(self->spec);
    const mics_json_value *root = mics_json_root(json), *value = mics_json_get(root, field);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_FORMAT, "%s: is no JSON object", name);
    if (value == NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has no \"%s\"; name the field that holds its text in data.text_field "
                         "(tokenize: --text-field)",
                         name, field);
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return mics_fail(MICS_ERR_INVALID, "%s: \"%s\" is no string", name, field);
    *text_out = value;
    return MICS_OK;
}

static mics_status append_text(tokenizing *self, const char *text, size_t bytes)
{
    mics_token_list *list = &self->list;
    mics_encoder encoder = {0}; // a text does not depend on the one before
    size_t consumed = 0;
    list->count = 0;
    if (bytes == 0)
        return MICS_OK;
    self->texts++;
    MICS_TRY(mics_shard_append(self->writer, self->around.before, self->around.before_count));
    mics_status status = mics_encoder_open(self->spec->tokenizer, false, &encoder);
    if (status == MICS_OK)
        status = mics_encoder_feed(&encoder, text, bytes, false, list, &consumed);
    mics_encoder_fini(&encoder);
    MICS_TRY(status);
    MICS_TRY(mics_shard_append(self->writer, list->tokens, list->count));
    return mics_shard_append(self->writer, self->around.after, self->around.after_count);
}

static bool is_blank(const char *line, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        if (strchr(" \t\r", line[i]) == NULL || line[i] == '\0')
            return false;
    }
    return true;
}

static mics_status take_line(tokenizing *self, const char *line, size_t bytes)
{
    char name[NAME_BYTES];
    mics_json *json = NULL;
    const mics_json_value *text = NULL;
    const size_t mark =
        self->line++ == 0 && bytes >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (is_blank(line + mark, bytes - mark))
        return MICS_OK;
    snprintf(name, sizeof name, "%s, line %" PRId64, self->window->reader.path, self->line);
    MICS_TRY(
        mics_json_parse_line(self->window->reader.memory, name, line + mark, bytes - mark, &json));
    mics_status status = find_text(self, json, name, &text);
    if (status == MICS_OK)
        status = append_text(self, mics_json_string(text), mics_json_string_bytes(text));
    mics_json_close(json);
    return status;
}

// All whole lines of the window; behind the file's end also the last one.
static mics_status take_lines(tokenizing *self)
{
    mics_text_window *window = self->window;
    size_t at = 0;
    while (at < window->filled) {
        const char *line = window->bytes + at;
        const char *end = memchr(line, '\n', window->filled - at);
        if (end == NULL && !window->ended)
            break;
        const size_t bytes = end != NULL ? (size_t)(end - line) : window->filled - at;
        MICS_TRY(take_line(self, line, bytes));
        at += bytes + (end != NULL);
    }
    if (at == 0 && window->filled == window->capacity) {
        if (window->capacity >= MAX_LINE)
            return mics_fail(MICS_ERR_FORMAT, "%s, line %" PRId64 ": has more than %d MiB",
                             window->reader.path, self->line + 1, MAX_LINE >> 20);
        return mics_text_window_widen(window);
    }
    mics_text_window_drop(window, at);
    return MICS_OK;
}

static mics_status tokenize_lines(tokenizing *self)
{
    while (!self->window->ended) {
        MICS_TRY(mics_text_window_fill(self->window));
        MICS_TRY(take_lines(self));
    }
    return MICS_OK;
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

mics_status mics_tokenize(mics_text_window *window, const mics_corpus_spec *spec,
                          mics_shard_writer *writer, bool *empty_out)
{
    tokenizing self = {.window = window,
                       .spec = spec,
                       .writer = writer,
                       .list = {.memory = window->reader.memory}};
    mics_status status = surroundings(spec->tokenizer, &self.around);
    if (status == MICS_OK)
        status = is_json_lines(window->reader.path) ? tokenize_lines(&self) : tokenize_text(&self);
    *empty_out = self.texts == 0;
    mics_encoder_fini(&self.encoder);
    mics_token_list_fini(&self.list);
    return status;
}
