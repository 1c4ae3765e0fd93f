// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// JSON documents over jansson. The wrapper's own blocks come from mics_memory; jansson's tree comes
// from malloc, because its allocator can only be replaced for the whole process.
//
// A mics_json_value is jansson's json_t, owned by the document's tree. `text`: the text as read, or
// of YAML the JSON of the same lines. `overrides`: paths that mics_json_set changed since.
// `sources`: paths of mics_json_set_from, with their values' places in the text.
#include "base/json.h"
#include "base/file.h"
#include "base/free.h"
#include "base/json_text.h"
#include "base/size.h"
#include "base/text.h"
#include "base/yaml.h"
#include <ctype.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 64, NEAREST_BYTES = 64, MESSAGE_BYTES = 1024, SOURCE_BYTES = 256 };

// Of a document's tree. The largest known tokenizer.json, with 514906 merges in 33 MB, takes some
// 240 MiB by that sum; a text of nothing but "[]," takes 50 bytes for each of its own.
static const uint64_t MAX_TREE_BYTES = (uint64_t)512 << 20;

struct mics_json {
    mics_memory *memory;
    char *name;
    char *text;
    json_t *root;
    bool is_line;      // the name says which line of a file it is
    json_t *overrides; // array of strings
    json_t *sources;   // object of strings
};

static json_t *tree_of(const mics_json_value *value)
{
    return (json_t *)value; // jansson asks for a json_t that is not const, even to read it
}

static const mics_json_value *value_of(const json_t *tree)
{
    return (const mics_json_value *)tree;
}

// ---- reading ----

static mics_status fail_at(const mics_json *json, int line, int column, const char *what,
                           const char *more)
{
    if (json->is_line)
        return mics_fail(MICS_ERR_FORMAT, "%s, column %d: %s%s", json->name, column, what, more);
    return mics_fail(MICS_ERR_FORMAT, "%s:%d:%d: %s%s", json->name, line, column, what, more);
}

// Refuses what jansson would pass over: it takes no notice of a NUL behind a number, where a text
// ends for everybody else.
static mics_status check_nul(const mics_json *json, size_t bytes)
{
    const size_t before = strlen(json->text);
    mics_json_place place = {.line = 1, .column = 1};
    if (before == bytes)
        return MICS_OK;
    for (size_t i = 0; i < before; i++) {
        const bool ends_line = json->text[i] == '\n';
        place.line += ends_line ? 1 : 0;
        place.column = ends_line ? 1 : place.column + 1;
    }
    return fail_at(json, (int)place.line, (int)place.column, "a NUL in the text", "");
}

static mics_status check_tree(const mics_json *json, const char *text, size_t bytes)
{
    char needed[32], most[32];
    const uint64_t tree = mics_json_text_tree_bytes(text, bytes);
    if (tree <= MAX_TREE_BYTES)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: its values would take %s of memory, and a JSON document may take %s",
                     json->name, mics_size_text((double)tree, needed, sizeof needed),
                     mics_size_text((double)MAX_TREE_BYTES, most, sizeof most));
}

// What other readers pass over: the comments and last commas of JSON5 and Hjson.
static const char *extra_of(const mics_json *json, size_t bytes, const json_error_t *error)
{
    const bool ends =
        strstr(error->text, "near '}'") != NULL || strstr(error->text, "near ']'") != NULL;
    size_t at = error->position > 0 ? (size_t)error->position - 1 : 0;
    if (strstr(error->text, "near '/") != NULL || strstr(error->text, "near '#") != NULL)
        return ": JSON has no comments; take them out";
    at = at < bytes ? at : bytes;
    while (ends && at > 0 && strchr(" \t\r\n", json->text[at - 1]) != NULL)
        at--;
    return ends && at > 0 && json->text[at - 1] == ','
               ? ": JSON has no comma after the last one; take it out"
               : NULL;
}

// Python's json writes what JSON has not. Integers may be larger than int64: transformers writes a
// model_max_length of 1000000000000000019884624838656 for none. They become reals. Numbers that are
// not finite become strings, as hybrids have for a time step without a limit: an error where one
// is used as a number. `text` stays as it was read.
static mics_status parse_python(mics_json *json, size_t bytes, size_t flags, json_error_t *error)
{
    char *copy = NULL;
    MICS_TRY(MICS_NEW(json->memory, 2 * bytes + 1, &copy));
    const size_t quoted = mics_json_text_quote_nonfinite(json->text, bytes, copy);
    mics_json_text_widen(copy, quoted);
    const mics_status status = check_tree(json, copy, quoted);
    if (status == MICS_OK)
        json->root = json_loadb(copy, quoted, flags, error);
    mics_free(json->memory, copy);
    return status;
}

// jansson ends a word at its first sign: "-" of -Infinity.
static bool is_python(const json_error_t *error)
{
    const json_error_t *e = error;
    return json_error_code(e) == json_error_numeric_overflow ||
           strstr(e->text, "Infinity") != NULL || strstr(e->text, "NaN") != NULL ||
           strstr(e->text, "near '-'") != NULL;
}

static mics_status parse_text(mics_json *json, size_t bytes, size_t flags)
{
    mics_json_place place = {0};
    MICS_TRY(check_nul(json, bytes));
    MICS_TRY(check_tree(json, json->text, bytes));
    if (mics_json_text_too_deep(json->text, bytes, MAX_DEPTH, &place)) {
        char levels[48];
        snprintf(levels, sizeof levels, "nested deeper than %d levels", MAX_DEPTH);
        return fail_at(json, (int)place.line, (int)place.column, levels, "");
    }
    json_error_t error;
    flags |= JSON_REJECT_DUPLICATES;
    json->root = json_loadb(json->text, bytes, flags, &error);
    if (json->root == NULL && is_python(&error))
        MICS_TRY(parse_python(json, bytes, flags, &error));
    if (json->root != NULL)
        return MICS_OK;
    if (json_error_code(&error) == json_error_out_of_memory)
        return mics_fail(MICS_ERR_MEMORY, "%s: no memory for its tree", json->name);
    const char *why = extra_of(json, bytes, &error);
    if (why == NULL && strncmp(error.text, "'[' or '{' expected", 19) == 0)
        why = ": it must be a JSON object or array";
    return fail_at(json, error.line, error.column, error.text, why != NULL ? why : "");
}

// Takes `text` over, in success and failure; its bytes are followed by a NUL.
static mics_status open_take(mics_memory *memory, const char *name, char *text, size_t bytes,
                             bool is_line, size_t flags, mics_json **json_out)
{
    mics_json *json = NULL;
    mics_status status = MICS_NEW(memory, 1, &json);
    if (status != MICS_OK) {
        mics_free(memory, text);
        return status;
    }
    json->memory = memory;
    json->text = text;
    json->is_line = is_line;
    MICS_TRY_OUT(mics_strdup(memory, name, &json->name));
    MICS_TRY_OUT(parse_text(json, bytes, flags));
    *json_out = json;
    json = NULL;
out:
    mics_json_close(json);
    return status;
}

mics_status mics_json_load(mics_memory *memory, const char *path, size_t max_bytes,
                           mics_json **json_out)
{
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_file_read_whole(memory, path, max_bytes, &text, &bytes));
    // Editors of Windows begin a file with a mark.
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        bytes -= 3;
        memmove(text, text + 3, bytes + 1); // with the NUL
    }
    if (mics_yaml_is_named(path)) {
        char *yaml = text;
        const mics_status status = mics_yaml_to_json(memory, path, yaml, bytes, &text, &bytes);
        mics_free(memory, yaml);
        MICS_TRY(status);
    }
    return open_take(memory, path, text, bytes, false, 0, json_out);
}

static mics_status open_copy(mics_memory *memory, const char *name, const char *text, size_t bytes,
                             bool is_line, size_t flags, mics_json **json_out)
{
    char *copy = NULL;
    MICS_TRY(MICS_NEW(memory, bytes + 1, &copy));
    if (bytes != 0)
        memcpy(copy, text, bytes);
    return open_take(memory, name, copy, bytes, is_line, flags, json_out);
}

mics_status mics_json_parse(mics_memory *memory, const char *name, const char *text, size_t bytes,
                            mics_json **json_out)
{
    return open_copy(memory, name, text, bytes, false, 0, json_out);
}

mics_status mics_json_parse_line(mics_memory *memory, const char *name, const char *line,
                                 size_t bytes, mics_json **json_out)
{
    return open_copy(memory, name, line, bytes, true, 0, json_out);
}

mics_status mics_json_parse_foreign_line(mics_memory *memory, const char *name, const char *line,
                                         size_t bytes, mics_json **json_out)
{
    return open_copy(memory, name, line, bytes, true, JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
                     json_out);
}

void mics_json_close(mics_json *json)
{
    if (json == NULL)
        return;
    json_decref(json->root);
    json_decref(json->overrides);
    json_decref(json->sources);
    MICS_FREE_ALL(json->memory, json->text, json->name, json);
}

// ---- looking ----

const char *mics_json_name(const mics_json *json)
{
    return json->name;
}

const char *mics_json_text(const mics_json *json)
{
    return json->text;
}

const mics_json_value *mics_json_root(const mics_json *json)
{
    return value_of(json->root);
}

mics_json_type mics_json_type_of(const mics_json_value *value)
{
    static const mics_json_type types[] = {
        [JSON_OBJECT] = MICS_JSON_OBJECT, [JSON_ARRAY] = MICS_JSON_ARRAY,
        [JSON_STRING] = MICS_JSON_STRING, [JSON_INTEGER] = MICS_JSON_INT,
        [JSON_REAL] = MICS_JSON_REAL,     [JSON_TRUE] = MICS_JSON_BOOL,
        [JSON_FALSE] = MICS_JSON_BOOL,    [JSON_NULL] = MICS_JSON_NULL,
    };
    return value != NULL ? types[json_typeof(tree_of(value))] : MICS_JSON_NULL;
}

const char *mics_json_type_text(mics_json_type type)
{
    static const char *const texts[] = {"null",     "true or false", "an integer", "a number",
                                        "a string", "an array",      "an object"};
    return (unsigned)type < sizeof texts / sizeof *texts ? texts[type] : "unknown";
}

const mics_json_value *mics_json_get(const mics_json_value *object, const char *key)
{
    return value_of(json_object_get(tree_of(object), key));
}

// Member whose key is the `bytes` characters at `key`.
static json_t *find_member(json_t *object, const char *key, size_t bytes)
{
    const char *name = NULL;
    json_t *member = NULL;
    json_object_foreach(object, name, member)
    {
        if (strncmp(name, key, bytes) == 0 && name[bytes] == '\0')
            return member;
    }
    return NULL;
}

const mics_json_value *mics_json_at(const mics_json *json, const char *path)
{
    json_t *here = json->root;
    for (;;) {
        size_t bytes = strcspn(path, ".");
        here = find_member(here, path, bytes);
        if (here == NULL || path[bytes] == '\0')
            return value_of(here);
        path += bytes + 1;
    }
}

int32_t mics_json_count(const mics_json_value *value)
{
    size_t count = json_is_array(tree_of(value)) ? json_array_size(tree_of(value))
                                                 : json_object_size(tree_of(value));
    return count > INT32_MAX ? INT32_MAX : (int32_t)count;
}

const mics_json_value *mics_json_element(const mics_json_value *array, int32_t index)
{
    return index < 0 ? NULL : value_of(json_array_get(tree_of(array), (size_t)index));
}

const mics_json_value *mics_json_next(const mics_json_value *object, const char **key)
{
    json_t *tree = tree_of(object);
    void *at = *key == NULL ? json_object_iter(tree)
                            : json_object_iter_next(tree, json_object_key_to_iter(*key));
    *key = at != NULL ? json_object_iter_key(at) : NULL;
    return at != NULL ? value_of(json_object_iter_value(at)) : NULL;
}

bool mics_json_bool(const mics_json_value *value)
{
    return json_is_true(tree_of(value));
}

int64_t mics_json_int(const mics_json_value *value)
{
    return json_integer_value(tree_of(value));
}

double mics_json_real(const mics_json_value *value)
{
    return json_number_value(tree_of(value));
}

const char *mics_json_string(const mics_json_value *value)
{
    return json_string_value(tree_of(value));
}

size_t mics_json_string_bytes(const mics_json_value *value)
{
    return json_string_length(tree_of(value));
}

// ---- speaking of places ----

// True when the path, or what holds it, was changed by mics_json_set.
static bool is_overridden(const mics_json *json, const char *path)
{
    size_t i = 0;
    json_t *override = NULL;
    json_array_foreach(json->overrides, i, override)
    {
        size_t bytes = json_string_length(override);
        if (strncmp(path, json_string_value(override), bytes) == 0 &&
            (path[bytes] == '\0' || path[bytes] == '.'))
            return true;
    }
    return false;
}

const char *mics_json_source(const mics_json *json, const char *path, char *text, size_t capacity)
{
    const char *name = NULL;
    json_t *source = NULL;
    size_t longest = 0;
    json_object_foreach(json->sources, name, source)
    {
        const size_t bytes = strlen(name);
        if (bytes <= longest || strncmp(path, name, bytes) != 0 ||
            (path[bytes] != '\0' && path[bytes] != '.'))
            continue;
        snprintf(text, capacity, "%s%s", json_string_value(source), path + bytes);
        longest = bytes;
    }
    return longest > 0 ? text : path;
}

void mics_json_write(mics_text *text, const mics_json_value *value)
{
    enum { ANY_COMPACT = JSON_ENCODE_ANY | JSON_COMPACT };
    char *dumped = value != NULL ? json_dumps(tree_of(value), ANY_COMPACT) : NULL;
    mics_text_printf(text, "%s", value != NULL && dumped != NULL ? dumped : "null");
    if (value != NULL && dumped == NULL)
        text->status = mics_fail(MICS_ERR_MEMORY, "no memory for a JSON text");
    free(dumped);
}

int32_t mics_json_line(const mics_json *json, const char *path)
{
    char source[SOURCE_BYTES];
    path = mics_json_source(json, path, source, sizeof source);
    return is_overridden(json, path) ? 0 : mics_json_text_line(json->text, path, strlen(path));
}

mics_status mics_json_fail(const mics_json *json, const char *path, mics_status status,
                           const char *format, ...)
{
    char what[MESSAGE_BYTES], source[SOURCE_BYTES];
    va_list args;
    va_start(args, format);
    mics_text_vformat(what, sizeof what, format, args);
    va_end(args);
    if (path == NULL || *path == '\0')
        return mics_fail(status, "%s: %s", json->name, what);
    path = mics_json_source(json, path, source, sizeof source);
    if (is_overridden(json, path))
        return mics_fail(status, "%s, --set %s: %s", json->name, path, what);
    // A key that is missing is spoken of at the line of what should hold it.
    size_t bytes = strlen(path);
    int32_t line = mics_json_text_line(json->text, path, bytes);
    while (line == 0 && bytes > 0) {
        while (bytes > 0 && path[--bytes] != '.')
            continue;
        if (bytes > 0)
            line = mics_json_text_line(json->text, path, bytes);
    }
    if (line == 0)
        return mics_fail(status, "%s: %s: %s", json->name, path, what);
    return mics_fail(status, "%s:%d: %s: %s", json->name, (int)line, path, what);
}

static bool is_same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

// Damerau and Levenshtein's distance that ignores case, of texts no longer than NEAREST_BYTES: two
// neighbours in the wrong order are one edit.
static int32_t edit_distance(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    int32_t rows[3][NEAREST_BYTES + 1];
    for (size_t j = 0; j <= b_bytes; j++)
        rows[0][j] = (int32_t)j;
    for (size_t i = 1; i <= a_bytes; i++) {
        const int32_t *above = rows[(i - 1) % 3], *second = rows[(i + 1) % 3];
        int32_t *row = rows[i % 3];
        row[0] = (int32_t)i;
        for (size_t j = 1; j <= b_bytes; j++) {
            row[j] = above[j - 1] + (is_same(a[i - 1], b[j - 1]) ? 0 : 1);
            if (row[j - 1] + 1 < row[j])
                row[j] = row[j - 1] + 1;
            if (above[j] + 1 < row[j])
                row[j] = above[j] + 1;
            if (i > 1 && j > 1 && is_same(a[i - 1], b[j - 2]) && is_same(a[i - 2], b[j - 1]) &&
                second[j - 2] + 1 < row[j])
                row[j] = second[j - 2] + 1;
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

const char *mics_json_nearest(const char *name, const char *const *names, int32_t count)
{
    const char *nearest = NULL;
    int32_t nearest_distance = INT32_MAX;
    size_t bytes = strlen(name);
    for (int32_t i = 0; bytes <= NEAREST_BYTES && i < count; i++) {
        size_t other = strlen(names[i]);
        if (other > NEAREST_BYTES)
            continue;
        int32_t distance = edit_distance(name, bytes, names[i], other);
        size_t longer = bytes > other ? bytes : other;
        if (distance < nearest_distance && 3 * (size_t)distance <= longer) {
            nearest = names[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}

// ---- changing ----

// A value for a command line's text: JSON when it parses, else a string.
static mics_status value_from_text(const mics_json *json, const char *path, const char *text,
                                   json_t **value_out)
{
    mics_json_place place;
    if (mics_json_text_too_deep(text, strlen(text), MAX_DEPTH, &place))
        return mics_fail(MICS_ERR_INVALID, "%s, --set %s: nested deeper than %d levels", json->name,
                         path, MAX_DEPTH);
    json_error_t error;
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, &error);
    if (value == NULL && json_error_code(&error) == json_error_numeric_overflow)
        return mics_fail(MICS_ERR_INVALID, "%s, --set %s: %s is beyond 64 bits", json->name, path,
                         text);
    if (value == NULL)
        value = json_string(text);
    if (value == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s, --set %s: the value is not UTF-8", json->name,
                         path);
    *value_out = value;
    return MICS_OK;
}

// Splits a copy of a dotted path in place.
static mics_status split_path(const mics_json *json, char *copy, const char *keys_out[MAX_DEPTH],
                              int32_t *count_out)
{
    int32_t count = 0;
    for (char *key = copy; key != NULL; count++) {
        char *dot = strchr(key, '.');
        if (count == MAX_DEPTH || *key == '\0' || key == dot)
            return mics_fail(MICS_ERR_INVALID,
                             "%s, --set: the path needs 1 to %d keys with dots between, as in "
                             "optimizer.params.lr",
                             json->name, MAX_DEPTH);
        keys_out[count] = key;
        if (dot != NULL)
            *dot = '\0';
        key = dot != NULL ? dot + 1 : NULL;
    }
    *count_out = count;
    return MICS_OK;
}

// Puts `value`, which it takes over, below the deepest object that the path already has.
static mics_status set_take(mics_json *json, const char *path, const char *const *keys,
                            int32_t count, json_t *value)
{
    json_t *holder = json->root, *next = NULL;
    int32_t known = 0;
    while (known < count - 1 && (next = json_object_get(holder, keys[known])) != NULL) {
        holder = next;
        known++;
    }
    if (!json_is_object(holder)) {
        json_decref(value);
        return mics_fail(MICS_ERR_INVALID, "%s, --set %s: \"%s\" would lie in %s, not in an object",
                         json->name, path, keys[known],
                         mics_json_type_text(mics_json_type_of(value_of(holder))));
    }
    for (int32_t i = count - 1; i > known && value != NULL; i--) {
        json_t *outer = json_object();
        if (json_object_set_new(outer, keys[i], value) != 0) { // lets go of the value even then
            json_decref(outer);
            outer = NULL;
        }
        value = outer;
    }
    if (value == NULL || json_object_set_new(holder, keys[known], value) != 0)
        return mics_fail(MICS_ERR_MEMORY, "%s, --set %s: no memory for it", json->name, path);
    return MICS_OK;
}

static mics_status note_override(mics_json *json, json_t *path)
{
    if (json->overrides == NULL)
        json->overrides = json_array();
    if (json_array_append(json->overrides, path) != 0)
        return mics_fail(MICS_ERR_MEMORY, "%s, --set %s: no memory for it", json->name,
                         json_string_value(path));
    return MICS_OK;
}

// Where what is at `path` came from: NULL, mics_json_set.
static mics_status note_source(mics_json *json, json_t *path, const char *source)
{
    if (source == NULL)
        return note_override(json, path);
    if (json->sources == NULL)
        json->sources = json_object();
    if (json_object_set_new(json->sources, json_string_value(path), json_string(source)) != 0)
        return mics_fail(MICS_ERR_MEMORY, "%s: %s: no memory for it", json->name,
                         json_string_value(path));
    return MICS_OK;
}

static mics_status set_from(mics_json *json, const char *path, const char *text, const char *source)
{
    mics_status status = MICS_OK;
    char *copy = NULL;
    const char *keys[MAX_DEPTH];
    int32_t count = 0;
    json_t *value = NULL;
    json_t *override = json_string(path);
    if (override == NULL)
        return mics_fail(MICS_ERR_INVALID, "%s, --set: the path is not UTF-8", json->name);
    MICS_TRY_OUT(mics_strdup(json->memory, path, &copy));
    MICS_TRY_OUT(split_path(json, copy, keys, &count));
    MICS_TRY_OUT(value_from_text(json, path, text, &value));
    MICS_TRY_OUT(set_take(json, path, keys, count, json_incref(value)));
    MICS_TRY_OUT(note_source(json, override, source));
out:
    json_decref(value);
    json_decref(override);
    mics_free(json->memory, copy);
    return status;
}

mics_status mics_json_set(mics_json *json, const char *path, const char *text)
{
    return set_from(json, path, text, NULL);
}

mics_status mics_json_set_from(mics_json *json, const char *path, const char *text,
                               const char *source)
{
    return set_from(json, path, text, source);
}
