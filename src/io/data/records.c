// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Tables are as RFC 4180 has them, with what pandas allows besides: any line ends, blank lines, and
// quotes inside a field that does not begin with one.
#include "io/data/records.h"
#include "mics/log.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int64_t mics_records_lines(const char *text, size_t bytes)
{
    int64_t lines = 0;
    for (const char *at = text; (at = memchr(at, '\n', bytes - (size_t)(at - text))) != NULL; at++)
        lines++;
    return lines;
}

// ---- where a record ends ----

static size_t cut_line(const char *text, size_t bytes, size_t from)
{
    const char *end = memchr(text + from, '\n', bytes - from);
    return end != NULL ? (size_t)(end - text) + 1 : 0;
}

// Behind the "}" of the object at `at`.
static size_t cut_object(const char *text, size_t bytes, size_t at)
{
    int64_t depth = 0;
    bool quoted = false;
    for (; at < bytes; at++) {
        if (quoted && text[at] == '\\')
            at++;
        else if (text[at] == '"')
            quoted = !quoted;
        else if (!quoted && text[at] == '{')
            depth++;
        else if (!quoted && text[at] == '}' && --depth == 0)
            return at + 1;
    }
    return 0;
}

// Where an element begins: behind white space and what separates it from the one before.
static size_t begin_element(const char *text, size_t bytes)
{
    const size_t at = mics_reader_skip_white(text, bytes, 0);
    return at < bytes && (text[at] == '[' || text[at] == ',')
               ? mics_reader_skip_white(text, bytes, at + 1)
               : at;
}

// The array's end is a record, with all that follows it.
static size_t cut_element(const char *text, size_t bytes)
{
    const size_t at = begin_element(text, bytes);
    if (at == bytes || text[at] == ']')
        return 0;
    return text[at] == '{' ? cut_object(text, bytes, at) : cut_line(text, bytes, at);
}

static char delimiter_of(const mics_records *records)
{
    return records->kind == MICS_TEXT_CSV ? ',' : '\t';
}

// A field of a row, from *at on, which goes behind it and its delimiter. Writes it to `out` unless
// that is NULL, at most as many bytes as it takes. `ended_out`: by a quote, or without any.
// Returns whether another field follows.
static bool next_field(char delimiter, const char *row, size_t bytes, size_t *at, char *out,
                       size_t *length_out, bool *ended_out)
{
    const bool quotes = *at < bytes && row[*at] == '"';
    bool quoted = quotes;
    *length_out = 0;
    for (*at += quotes; *at < bytes; ++*at) {
        const char c = row[*at];
        if (!quoted && (c == delimiter || c == '\n' || c == '\r'))
            break;
        if (quoted && c == '"' && (*at + 1 == bytes || row[*at + 1] != '"')) {
            quoted = false;
            continue;
        }
        *at += quoted && c == '"'; // two for one
        if (out != NULL)
            out[*length_out] = c;
        ++*length_out;
    }
    *ended_out = !quoted;
    if (*at == bytes || row[*at] != delimiter)
        return false;
    ++*at;
    return true;
}

static size_t cut_row(char delimiter, const char *text, size_t bytes)
{
    size_t at = 0, length = 0;
    bool ended = false;
    while (next_field(delimiter, text, bytes, &at, NULL, &length, &ended))
        ;
    if (!ended || at == bytes || (text[at] == '\r' && at + 1 == bytes))
        return 0;
    return at + 1 + (text[at] == '\r' && text[at + 1] == '\n');
}

size_t mics_records_next(const mics_records *records, const char *text, size_t bytes, bool ended)
{
    size_t next = 0;
    if (records->kind == MICS_TEXT_LINES || records->kind == MICS_TEXT_PLAIN)
        next = cut_line(text, bytes, 0);
    else if (records->kind == MICS_TEXT_ARRAY)
        next = cut_element(text, bytes);
    else
        next = cut_row(delimiter_of(records), text, bytes);
    return next == 0 && ended ? bytes : next;
}

// ---- JSON ----

#define NO_OBJECT "%s: is no JSON object, as each %s must be"

// The fields that may have been meant: those that hold a text.
static mics_status fail_field(const char *name, const char *field, const mics_json_value *root)
{
    char texts[160] = "";
    size_t used = 0;
    const char *other = NULL;
    const mics_json_value *value = NULL;
    if (mics_json_get(root, "messages") != NULL || mics_json_get(root, "conversations") != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has no \"%s\" and is a chat; texts are read here, and chats are what "
                         "mics train reads, in data.train and in data.validation",
                         name, field);
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

static mics_status find_text(const mics_records *records, const char *name, mics_record *record)
{
    const char *field = records->field;
    const mics_json_value *root = mics_json_root(record->json);
    const mics_json_value *value = field != NULL ? mics_json_get(root, field) : NULL;
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_FORMAT, NO_OBJECT, name, "line");
    if (field == NULL)
        return MICS_OK;
    if (value == NULL)
        return fail_field(name, field, root);
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return mics_fail(MICS_ERR_INVALID, "%s: \"%s\" is no string", name, field);
    record->text = mics_json_string(value);
    record->bytes = mics_json_string_bytes(value);
    return MICS_OK;
}

void mics_records_name(const mics_records *records, int64_t line, char *name, size_t capacity)
{
    snprintf(name, capacity, "%s, %s %" PRId64, records->path, records->rows ? "row" : "line",
             line);
}

// An object that goes on behind its line, as tools print it that indent.
static bool goes_on(const char *text, size_t bytes)
{
    const size_t begin = mics_reader_skip_white(text, bytes, 0);
    while (bytes > begin && strchr(" \t\r\n", text[bytes - 1]) != NULL)
        bytes--;
    return text[begin] == '{' && strchr("{[,", text[bytes - 1]) != NULL;
}

static mics_status read_json(const mics_records *records, const char *text, size_t bytes,
                             int64_t line, mics_record *record)
{
    char name[MICS_RECORD_NAME];
    if (mics_reader_skip_white(text, bytes, 0) == bytes)
        return MICS_OK;
    mics_records_name(records, line, name, sizeof name);
    if (records->kind == MICS_TEXT_LINES && goes_on(text, bytes))
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: an object begins here that goes on in the next line; each line must "
                         "be one object, as jq -c . FILE writes them (jq -c '.KEY[]' those in an "
                         "array at KEY), or the file one array, [{...}, {...}], on any lines",
                         name);
    MICS_TRY(records->field != NULL
                 ? mics_json_parse_foreign_line(records->memory, name, text, bytes, &record->json)
                 : mics_json_parse_line(records->memory, name, text, bytes, &record->json));
    return find_text(records, name, record);
}

static mics_status read_element(const mics_records *records, const char *text, size_t bytes,
                                int64_t line, bool first, mics_record *record)
{
    char name[MICS_RECORD_NAME];
    const size_t mark = mics_reader_skip_white(text, bytes, 0), at = begin_element(text, bytes);
    const char before = mark < at ? text[mark] : '\0';
    mics_records_name(records, line + mics_records_lines(text, at), name, sizeof name);
    if (at == bytes)
        return mics_fail(MICS_ERR_FORMAT,
                         "%s: the array has no end: a \"]\" is missing; is the "
                         "file cut short?",
                         name);
    if (text[at] == ']' && before != ',') {
        if (mics_reader_skip_white(text, bytes, at + 1) == bytes)
            return MICS_OK;
        return mics_fail(MICS_ERR_FORMAT, "%s: more follows the array's end", name);
    }
    if (before != (first ? '[' : ','))
        return mics_fail(MICS_ERR_FORMAT, "%s: a \",\" is missing between two elements", name);
    if (text[at] != '{')
        return mics_fail(MICS_ERR_FORMAT, NO_OBJECT, name, "element");
    return read_json(records, text + at, bytes - at, line + mics_records_lines(text, at), record);
}

// ---- tables ----

static mics_status fail_open_quote(const char *name)
{
    return mics_fail(MICS_ERR_FORMAT, "%s: a quote that begins in this row is not closed", name);
}

mics_status mics_records_read_header(mics_records *records, const char *row, size_t bytes)
{
    char columns[512] = "";
    size_t at = 0, length = 0, used = 0;
    bool more = true, ended = true;
    mics_buffer name = {.memory = records->memory};
    MICS_TRY(mics_buffer_reserve(&name, bytes + 1));
    records->column = -1;
    for (int32_t i = 0; more; records->columns = ++i) {
        more = next_field(delimiter_of(records), row, bytes, &at, name.data, &length, &ended);
        if (records->column < 0 && strlen(records->field) == length &&
            memcmp(name.data, records->field, length) == 0)
            records->column = i;
        if (used < sizeof columns)
            used +=
                (size_t)snprintf(columns + used, sizeof columns - used, "%s\"%.*s\"",
                                 i == 0 ? "" : ", ", (int)(length < 80 ? length : 80), name.data);
    }
    mics_buffer_fini(&name);
    if (ended && records->column >= 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: has no column \"%s\"; its first row names %s; name the column that holds "
                     "the text by --text-field or in data.text_field",
                     records->path, records->field, columns);
}

static mics_status read_row(const mics_records *records, const char *row, size_t bytes,
                            int64_t line, mics_buffer *space, mics_record *record)
{
    char name[MICS_RECORD_NAME];
    size_t at = 0, length = 0;
    int32_t column = 0;
    bool more = true, ended = true;
    if (mics_reader_skip_white(row, bytes, 0) == bytes)
        return MICS_OK;
    mics_records_name(records, line, name, sizeof name);
    MICS_TRY(mics_buffer_reserve(space, bytes));
    for (; more; column++) {
        char *to = column == records->column ? space->data : NULL;
        more = next_field(delimiter_of(records), row, bytes, &at, to, &length, &ended);
        if (to != NULL)
            *record = (mics_record){.text = to, .bytes = length};
    }
    if (!ended)
        return fail_open_quote(name);
    if (column == records->columns || (column < records->columns && record->text != NULL))
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT, "%s: has %d fields, but the first row names %d", name,
                     (int)column, (int)records->columns);
}

mics_status mics_record_read(const mics_records *records, const char *bytes_of, size_t bytes,
                             int64_t line, bool first, mics_buffer *space, mics_record *record_out)
{
    const bool plain = records->kind == MICS_TEXT_PLAIN;
    *record_out = (mics_record){.text = plain ? bytes_of : NULL, .bytes = plain ? bytes : 0};
    if (plain)
        return MICS_OK;
    if (records->kind == MICS_TEXT_LINES)
        return read_json(records, bytes_of, bytes, line, record_out);
    if (records->kind == MICS_TEXT_ARRAY)
        return read_element(records, bytes_of, bytes, line, first, record_out);
    return read_row(records, bytes_of, bytes, line, space, record_out);
}

void mics_record_fini(mics_record *record)
{
    mics_json_close(record->json);
}
