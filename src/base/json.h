// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// JSON documents (read by jansson, and YAML by libyaml), with errors that name file, line and key.
#pragma once

#include "base/text.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A document: owns its text and tree.
typedef struct mics_json mics_json;
// A value inside a document; lives as long as the document, or until mics_json_set replaces it or
// what holds it. NULL: not there; every reader below takes it.
typedef struct mics_json_value mics_json_value;

typedef enum mics_json_type {
    MICS_JSON_NULL,
    MICS_JSON_BOOL,
    MICS_JSON_INT,
    MICS_JSON_REAL,
    MICS_JSON_STRING,
    MICS_JSON_ARRAY,
    MICS_JSON_OBJECT
} mics_json_type;

/* Reads a file, refusing more than max_bytes, values that would take more than 512 MiB of memory,
 * duplicate keys, nesting over 64 levels, NULs and invalid UTF-8. Integers beyond int64 are reals;
 * NaN, Infinity and -Infinity, which Python writes, are strings. A byte order mark is passed over. A
 * file called *.yaml or *.yml is read as YAML, without aliases and tags; its lines are those of
 * errors.
 *
 * Needs:   max_bytes >= 1: 0 refuses every file.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT ("FILE:LINE:COLUMN: what"); MICS_ERR_MEMORY.
 * Owns:    close with mics_json_close.
 */
mics_status mics_json_load(mics_memory *memory, const char *path, size_t max_bytes,
                           mics_json **json_out);

/* The same from text; `name` stands for the file in errors.
 *
 * Needs:   `text` has `bytes` bytes; a NUL behind them is not asked for.
 * Returns: MICS_OK; MICS_ERR_FORMAT ("NAME:LINE:COLUMN: what"); MICS_ERR_MEMORY.
 * Owns:    close with mics_json_close; the text is copied.
 */
mics_status mics_json_parse(mics_memory *memory, const char *name, const char *text, size_t bytes,
                            mics_json **json_out);

/* The same for a line of a file. `name` says which line it is, so errors give the column alone.
 *
 * Needs:   `line` has `bytes` bytes.
 * Returns: as mics_json_parse.
 * Owns:    close with mics_json_close; the line is copied.
 */
mics_status mics_json_parse_line(mics_memory *memory, const char *name, const char *line,
                                 size_t bytes, mics_json **json_out);

/* The same for a line of somebody else's data: integers are taken as real numbers, since they may be
 * beyond 64 bits, and strings may hold NULs (mics_json_string_bytes).
 *
 * Needs:   `line` has `bytes` bytes.
 * Returns: as mics_json_parse.
 * Owns:    close with mics_json_close; the line is copied.
 */
mics_status mics_json_parse_foreign_line(mics_memory *memory, const char *name, const char *line,
                                         size_t bytes, mics_json **json_out);

/* Closes; NULL is allowed. Its values are gone then. */
void mics_json_close(mics_json *json);

/* The file's name as given; never NULL. */
const char *mics_json_name(const mics_json *json);

/* The document's text as read, or of YAML the same values as JSON, NUL-terminated; never NULL. */
const char *mics_json_text(const mics_json *json);

/* The document's one value; never NULL. */
const mics_json_value *mics_json_root(const mics_json *json);

/* A value's type; MICS_JSON_NULL for one that is not there. */
mics_json_type mics_json_type_of(const mics_json_value *value);

/* Whether a value is a number; false for one that is not there. */
static inline bool mics_json_is_number(const mics_json_value *value)
{
    const mics_json_type type = mics_json_type_of(value);
    return type == MICS_JSON_INT || type == MICS_JSON_REAL;
}

/* "a string", "an object", ...; never NULL. */
const char *mics_json_type_text(mics_json_type type);

/* Member of an object, NULL when absent or not an object. */
const mics_json_value *mics_json_get(const mics_json_value *object, const char *key);
/* Value at a dotted path from the root ("optimizer.params.lr"), or NULL. */
const mics_json_value *mics_json_at(const mics_json *json, const char *path);
/* Members of an object, or elements of an array; 0 for other values. */
int32_t mics_json_count(const mics_json_value *value);

/* An element of an array.
 *
 * Needs:   nothing: beyond the ends there is none.
 * Returns: NULL when there is none, or it is no array.
 */
const mics_json_value *mics_json_element(const mics_json_value *array, int32_t index);
/* Walks the members of an object in the file's order: with *key NULL gives the first, with the key
 * of the last call (the same pointer) the next. Returns the value and leaves its key in *key; NULL,
 * and *key NULL, at the end or when it is not an object. */
const mics_json_value *mics_json_next(const mics_json_value *object, const char **key);

/* Plain readers. They need the right type (REAL also reads INT).
 *
 * Units:   the value's.
 * Returns: of another type: false, 0, 0.0 or NULL.
 */
bool mics_json_bool(const mics_json_value *value);
int64_t mics_json_int(const mics_json_value *value);
double mics_json_real(const mics_json_value *value);
const char *mics_json_string(const mics_json_value *value); // UTF-8, NUL-terminated
size_t mics_json_string_bytes(const mics_json_value *value);

/* Whether two values are the same: numbers by value, members of objects in any order; NULL: none. */
bool mics_json_is_same(const mics_json_value *a, const mics_json_value *b);

/* Appends a value as JSON, on one line; "null" for one that is not there. */
void mics_json_write(mics_text *text, const mics_json_value *value);

/* Line (from 1) on which the key at a dotted path stands in the text; 0 when it does not, is
 * written with escapes, or was changed by mics_json_set. */
int32_t mics_json_line(const mics_json *json, const char *path);

/* Logs "FILE:LINE: key: what" and returns `status`.
 *
 * The line of a key that is missing is that of the nearest object above it; one that mics_json_set
 * changed gives "FILE, --set key: what", a path that is NULL or empty "FILE: what".
 * Returns: `status`.
 */
mics_status mics_json_fail(const mics_json *json, const char *path, mics_status status,
                           const char *format, ...) MICS_PRINTF(4, 5);

/* Nearest of `count` names to `name` by edit distance without regard to case, or NULL when none is
 * near (more than a third of the longer differs; names over 64 bytes are near to none).
 *
 * Needs:   names: (count), count >= 0.
 */
const char *mics_json_nearest(const char *name, const char *const *names, int32_t count);

/* Sets the value at a dotted path, making objects on the way: for --set a.b=v. `text` is JSON, or
 * taken as a string when it does not parse. mics_json_text stays what was read.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (the path runs through something that is no object, has an
 * empty key or more than 64; text or path is not UTF-8); MICS_ERR_MEMORY. The document is unchanged
 * then, but for MICS_ERR_MEMORY, which may come after the change.
 */
mics_status mics_json_set(mics_json *json, const char *path, const char *text);

/* The same for a value that the text has at the dotted path `source`, under another name or in
 * another form: mics_json_line and mics_json_fail speak of `source` then.
 *
 * Needs:   a `source` that stands nowhere in the text gives no line.
 * Returns: as mics_json_set.
 */
mics_status mics_json_set_from(mics_json *json, const char *path, const char *text,
                               const char *source);

/* Where the text has what is at `path`: the source of mics_json_set_from, or `path` itself.
 *
 * Needs:   capacity >= 1.
 * Returns: `path`, or `text`, into which at most `capacity` bytes are written.
 */
const char *mics_json_source(const mics_json *json, const char *path, char *text, size_t capacity);
