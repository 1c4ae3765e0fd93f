// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Walks a run file beside the table of keys: every key is known, of its type and in its range, and
// is stored in its field.
#include "config/keys.h"
#include "config/value.h"
#include "mics/log.h"
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PATH_BYTES = 160, LIST_BYTES = 400, KEY_SHOWN_BYTES = 64 };

// ---- storing ----

static void store_number(config *run, const key *row, double value)
{
    void *field = (char *)run + row->at;
    if (row->bytes == 0)
        return;
    if (row->type == KEY_SWITCH)
        *(bool *)field = value != 0.0;
    else
        *(double *)field = value;
}

static void store_int(config *run, const key *row, int64_t value)
{
    void *field = (char *)run + row->at;
    if (row->bytes == sizeof(int32_t))
        *(int32_t *)field = (int32_t)value; // the row's range lies inside int32_t
    else if (row->bytes == sizeof(int64_t))
        *(int64_t *)field = value;
}

static void store_text(config *run, const key *row, const char *text)
{
    if (row->bytes != 0)
        *(const char **)((char *)run + row->at) = text;
}

static void store_default(config *run, const key *row)
{
    switch (row->type) {
    case KEY_SWITCH:
    case KEY_REAL:
        store_number(run, row, row->value);
        break;
    case KEY_INT:
    case KEY_BYTES:
        store_int(run, row, (int64_t)row->value);
        break;
    case KEY_TEXT:
    case KEY_CHOICE:
        store_text(run, row, row->text);
        break;
    case KEY_BETAS:
        run->betas[0] = 0.9;
        run->betas[1] = 0.999;
        break;
    case KEY_SECTION:
    case KEY_TEXTS:
    case KEY_REFUSED:
        break;
    }
}

// ---- values ----

// Notes a key that cannot be honoured; the walk goes on, so that the file's others are told too.
static mics_status refuse(config *run, const key *row, mics_status status, const char *format, ...)
{
    refusals *refused = &run->refused;
    char what[sizeof refused->what], line[32] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    int32_t number = mics_json_line(run->run.json, row->path);
    if (refused->count++ == 0) {
        refused->first = row;
        refused->status = status;
        memcpy(refused->what, what, sizeof what);
    }
    if (number > 0)
        snprintf(line, sizeof line, "line %d, ", (int)number);
    static const char said[] = "cannot be honoured: "; // by the line's beginning
    size_t skip = strncmp(what, said, sizeof said - 1) == 0 ? sizeof said - 1 : 0;
    size_t used = strlen(refused->all);
    snprintf(refused->all + used, sizeof refused->all - used, "%s(%d) %s%s: %s",
             used != 0 ? "; " : "", (int)refused->count, line, row->path, what + skip);
    return MICS_OK;
}

static mics_status fail_refused(const config *run)
{
    const refusals *refused = &run->refused;
    if (refused->count == 0)
        return MICS_OK;
    if (refused->count == 1)
        return mics_json_fail(run->run.json, refused->first->path, refused->status, "%s",
                              refused->what);
    bool cut = strlen(refused->all) + 1 == sizeof refused->all;
    return mics_fail(refused->status, "%s: %d keys cannot be honoured: %s%s",
                     mics_json_name(run->run.json), (int)refused->count, refused->all,
                     cut ? "..." : "");
}

// "must be 1, not 3; why", for a value outside what the row allows.
static mics_status fail_value(config *run, const key *row, mics_status status, const char *expected,
                              const mics_json_value *value)
{
    char text[LIST_BYTES / 4];
    mics_config_value_text(value, text, sizeof text);
    if (status == MICS_ERR_UNSUPPORTED)
        return refuse(run, row, status, "must be %s, not %s%s%s", expected, text,
                      row->refusal != NULL ? "; " : "", row->refusal != NULL ? row->refusal : "");
    return mics_json_fail(run->run.json, row->path, status, "must be %s, not %s%s%s", expected,
                          text, row->refusal != NULL ? "; " : "",
                          row->refusal != NULL ? row->refusal : "");
}

static mics_status fail_type(config *run, const key *row, const mics_json_value *value,
                             const char *expected)
{
    mics_json_type type = mics_json_type_of(value);
    if (type == MICS_JSON_STRING && strcmp(mics_json_string(value), "auto") == 0)
        return refuse(run, row, MICS_ERR_INVALID,
                      "cannot be \"auto\": nothing here could say what it should be; give %s",
                      expected);
    return mics_json_fail(run->run.json, row->path, MICS_ERR_FORMAT, "must be %s, not %s", expected,
                          mics_json_type_text(type));
}

static mics_status fail_range(config *run, const key *row, const mics_json_value *value)
{
    char range[64];
    if (row->low == row->high)
        snprintf(range, sizeof range, "%.15g", row->low);
    else if (row->high > 1e18)
        snprintf(range, sizeof range, "%.15g or more", row->low);
    else
        snprintf(range, sizeof range, "%.15g to %.15g", row->low, row->high);
    return fail_value(run, row, row->refusal != NULL ? MICS_ERR_UNSUPPORTED : MICS_ERR_INVALID,
                      range, value);
}

static mics_status take_switch(config *run, const key *row, const mics_json_value *value)
{
    if (mics_json_type_of(value) != MICS_JSON_BOOL)
        return fail_type(run, row, value, "true or false");
    double on = mics_json_bool(value) ? 1.0 : 0.0;
    if (on < row->low || on > row->high)
        return fail_value(run, row, MICS_ERR_UNSUPPORTED, row->low > 0.0 ? "true" : "false", value);
    store_number(run, row, on);
    return MICS_OK;
}

static mics_status take_int(config *run, const key *row, const mics_json_value *value)
{
    int64_t number = 0;
    mics_json_type type = mics_json_type_of(value);
    if (type != MICS_JSON_INT && type != MICS_JSON_REAL)
        return fail_type(run, row, value, "an integer");
    if (!mics_config_value_int(value, &number))
        return fail_value(run, row, MICS_ERR_INVALID, "a whole number", value);
    if ((double)number < row->low || (double)number > row->high)
        return fail_range(run, row, value);
    store_int(run, row, number);
    return MICS_OK;
}

static mics_status take_real(config *run, const key *row, const mics_json_value *value)
{
    mics_json_type type = mics_json_type_of(value);
    if (type != MICS_JSON_INT && type != MICS_JSON_REAL)
        return fail_type(run, row, value, "a number");
    double number = mics_json_real(value);
    if (!(number >= row->low && number <= row->high))
        return fail_range(run, row, value);
    store_number(run, row, number);
    return MICS_OK;
}

static mics_status take_bytes(config *run, const key *row, const mics_json_value *value)
{
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return take_int(run, row, value);
    int64_t bytes = 0;
    if (!mics_config_bytes_parse(mics_json_string(value), &bytes))
        return fail_value(run, row, MICS_ERR_INVALID, "a number of bytes or as \"8GiB\"", value);
    store_int(run, row, bytes);
    return MICS_OK;
}

static mics_status take_text(config *run, const key *row, const mics_json_value *value)
{
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return fail_type(run, row, value, "a string");
    if (*mics_json_string(value) == '\0')
        return fail_value(run, row, MICS_ERR_INVALID, "a text", value);
    store_text(run, row, mics_json_string(value));
    return MICS_OK;
}

static mics_status take_choice(config *run, const key *row, const mics_json_value *value)
{
    if (mics_json_type_of(value) != MICS_JSON_STRING)
        return fail_type(run, row, value, "a string");
    char list[LIST_BYTES];
    size_t used = 0;
    for (int i = 0; row->choices[i] != NULL; i++) {
        if (strcasecmp(row->choices[i], mics_json_string(value)) == 0) {
            store_text(run, row, row->choices[i]);
            return MICS_OK;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s\"%s\"", i == 0 ? "" : " or ",
                                 row->choices[i]); // a few short names
    }
    return fail_value(run, row, MICS_ERR_UNSUPPORTED, list, value);
}

static mics_status take_texts(config *run, const key *row, const mics_json_value *value)
{
    bool alone = mics_json_type_of(value) == MICS_JSON_STRING;
    if (!alone && mics_json_type_of(value) != MICS_JSON_ARRAY)
        return fail_type(run, row, value, "an array of strings");
    int32_t count = alone ? 1 : mics_json_count(value);
    if ((double)count < row->low || (double)count > row->high)
        return mics_json_fail(run->run.json, row->path, MICS_ERR_INVALID,
                              "must name %.0f to %.0f files, not %d", row->low, row->high,
                              (int)count);
    for (int32_t i = 0; i < count; i++) {
        const mics_json_value *text = alone ? value : mics_json_element(value, i);
        if (mics_json_type_of(text) != MICS_JSON_STRING || *mics_json_string(text) == '\0')
            return mics_json_fail(run->run.json, row->path, MICS_ERR_FORMAT,
                                  "must hold file names alone; number %d is %s", (int)i + 1,
                                  mics_json_type_of(text) == MICS_JSON_STRING
                                      ? "an empty string"
                                      : mics_json_type_text(mics_json_type_of(text)));
    }
    text_list *list = (text_list *)((char *)run + row->at);
    void *block = NULL;
    MICS_TRY(mics_alloc(run->memory, MICS_MEM_HOST, (size_t)count * sizeof *list->texts, &block));
    list->texts = block;
    list->count = count;
    for (int32_t i = 0; i < count; i++)
        list->texts[i] = mics_json_string(alone ? value : mics_json_element(value, i));
    return MICS_OK;
}

static mics_status take_betas(config *run, const key *row, const mics_json_value *value)
{
    bool good = mics_json_type_of(value) == MICS_JSON_ARRAY && mics_json_count(value) == 2;
    for (int32_t i = 0; good && i < 2; i++) {
        mics_json_type type = mics_json_type_of(mics_json_element(value, i));
        good = type == MICS_JSON_INT || type == MICS_JSON_REAL;
    }
    if (!good)
        return fail_type(run, row, value, "two numbers, as in [0.9, 0.95]");
    for (int32_t i = 0; i < 2; i++) {
        double beta = mics_json_real(mics_json_element(value, i));
        if (!(beta >= row->low && beta <= row->high))
            return fail_value(run, row, MICS_ERR_INVALID, "two numbers from 0 to below 1", value);
        run->betas[i] = beta;
    }
    return MICS_OK;
}

static mics_status take_value(config *run, const key *row, const mics_json_value *value)
{
    switch (row->type) {
    case KEY_SWITCH:
        return take_switch(run, row, value);
    case KEY_INT:
        return take_int(run, row, value);
    case KEY_REAL:
        return take_real(run, row, value);
    case KEY_BYTES:
        return take_bytes(run, row, value);
    case KEY_TEXT:
        return take_text(run, row, value);
    case KEY_CHOICE:
        return take_choice(run, row, value);
    case KEY_TEXTS:
        return take_texts(run, row, value);
    case KEY_BETAS:
        return take_betas(run, row, value);
    case KEY_REFUSED:
        if (mics_config_value_off(value))
            return MICS_OK;
        return refuse(run, row, MICS_ERR_UNSUPPORTED, "cannot be honoured: %s", row->refusal);
    case KEY_SECTION:
        break;
    }
    return fail_type(run, row, value,
                     row->automatic != NULL
                         ? "an object, as in {\"params\": 2, \"optimizer\": 4}, or \"auto\""
                         : "an object");
}

// ---- keys ----

// True when the row at `path` lies directly in the section `parent` ("" is the file itself).
static bool is_child(const char *path, const char *parent)
{
    size_t bytes = strlen(parent);
    if (bytes == 0)
        return strchr(path, '.') == NULL;
    return strncmp(path, parent, bytes) == 0 && path[bytes] == '.' &&
           strchr(path + bytes + 1, '.') == NULL;
}

// The known key that an unknown one was most likely meant to be, or NULL: one of the same section,
// else one of that name elsewhere.
static const char *nearest_path(const char *parent, const char *name)
{
    int32_t count = 0;
    const key *rows = mics_config_keys(&count);
    const char *names[CONFIG_KEY_LIMIT], *paths[CONFIG_KEY_LIMIT];
    for (int pass = 0; pass < 2; pass++) {
        int32_t listed = 0;
        for (int32_t i = 0; i < count; i++) {
            if (pass == 0 && !is_child(rows[i].path, parent))
                continue;
            names[listed] = mics_config_leaf(rows[i].path);
            paths[listed++] = rows[i].path;
        }
        const char *near = mics_json_nearest(name, names, listed);
        for (int32_t i = 0; near != NULL && i < listed; i++) {
            if (names[i] == near)
                return paths[i];
        }
    }
    return NULL;
}

static void list_children(const char *parent, char *list, size_t capacity)
{
    int32_t count = 0;
    const key *rows = mics_config_keys(&count);
    size_t used = 0;
    list[0] = '\0';
    for (int32_t i = 0; i < count; i++) {
        if (!is_child(rows[i].path, parent) || rows[i].type == KEY_REFUSED ||
            (rows[i].flags & KEY_HINT) != 0)
            continue;
        int written = snprintf(list + used, capacity - used, "%s%s", used == 0 ? "" : ", ",
                               mics_config_leaf(rows[i].path));
        if (written < 0 || (size_t)written >= capacity - used)
            return;
        used += (size_t)written;
    }
}

static mics_status fail_unknown(const config *run, const char *parent, const char *path,
                                const char *name)
{
    const char *near = nearest_path(parent, name);
    if (near != NULL)
        return mics_json_fail(run->run.json, path, MICS_ERR_INVALID,
                              "unknown key; did you mean %s?", near);
    char list[LIST_BYTES];
    list_children(parent, list, sizeof list);
    return mics_json_fail(run->run.json, path, MICS_ERR_INVALID, "unknown key; known here: %s",
                          list);
}

// Names that no key has, and that would make a mess of an error line.
static bool is_odd(const char *name)
{
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > KEY_SHOWN_BYTES)
        return true;
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '.')
            return true;
    }
    return false;
}

// The key was set, or stands in something that was set.
static bool was_set(const config *run, const char *path)
{
    for (int32_t i = 0; i < run->set_count; i++) {
        size_t bytes = strcspn(run->sets[i], "=");
        if (strncmp(run->sets[i], path, bytes) == 0 && (path[bytes] == '\0' || path[bytes] == '.'))
            return true;
    }
    return false;
}

// Checks and stores one key; a section only as far as that it is one.
static mics_status check_key(config *run, int32_t index, const mics_json_value *value)
{
    int32_t count = 0;
    const key *row = &mics_config_keys(&count)[index];
    bool set = was_set(run, row->path);
    bool is_auto = mics_json_type_of(value) == MICS_JSON_STRING &&
                   strcmp(mics_json_string(value), "auto") == 0;
    bool may_auto = row->automatic != NULL || (row->flags & KEY_HINT) != 0;
    if (is_auto && may_auto && row->type != KEY_TEXT && row->type != KEY_CHOICE) {
        run->states[index] = (uint8_t)(set ? KEY_FROM_SET_AUTO : KEY_FROM_FILE_AUTO);
        return MICS_OK;
    }
    run->states[index] = (uint8_t)(set ? KEY_FROM_SET : KEY_FROM_FILE);
    if (row->type == KEY_SECTION && mics_json_type_of(value) == MICS_JSON_OBJECT)
        return MICS_OK;
    return take_value(run, row, value);
}

static mics_status check_section(config *run, const char *parent, const mics_json_value *object)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    while ((value = mics_json_next(object, &name)) != NULL) {
        char path[PATH_BYTES];
        if (is_odd(name))
            return mics_json_fail(run->run.json, parent, MICS_ERR_INVALID,
                                  "has a key that is empty, longer than %d bytes, or holds a dot, "
                                  "a space or other letters than a-z; no known key does",
                                  KEY_SHOWN_BYTES);
        snprintf(path, sizeof path, "%s%s%s", parent, *parent != '\0' ? "." : "", name);
        int32_t index = mics_config_find(path), count = 0;
        if (index < 0)
            return fail_unknown(run, parent, path, name);
        if (mics_json_type_of(value) == MICS_JSON_NULL)
            continue; // as if it were absent
        MICS_TRY(check_key(run, index, value));
        const key *row = &mics_config_keys(&count)[index];
        if (row->type == KEY_SECTION &&
            mics_json_type_of(value) == MICS_JSON_OBJECT) // one level down; the table has three
            MICS_TRY(check_section(run, row->path, value));
    }
    return MICS_OK;
}

static mics_status check_required(const config *run)
{
    int32_t count = 0;
    const key *rows = mics_config_keys(&count);
    for (int32_t i = 0; i < count; i++) {
        if ((rows[i].flags & KEY_REQUIRED) != 0 && rows[i].type != KEY_SECTION &&
            run->states[i] == KEY_ABSENT)
            return mics_json_fail(run->run.json, rows[i].path, MICS_ERR_INVALID, "is missing: %s",
                                  rows[i].help);
    }
    return MICS_OK;
}

mics_status mics_config_check(config *run)
{
    int32_t count = 0;
    const key *rows = mics_config_keys(&count);
    for (int32_t i = 0; i < count; i++)
        store_default(run, &rows[i]);
    const mics_json_value *root = mics_json_root(run->run.json);
    if (mics_json_type_of(root) != MICS_JSON_OBJECT)
        return mics_json_fail(run->run.json, NULL, MICS_ERR_FORMAT,
                              "a run file must be an object, not %s",
                              mics_json_type_text(mics_json_type_of(root)));
    MICS_TRY(check_section(run, "", root));
    MICS_TRY(fail_refused(run));
    return check_required(run);
}
