// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Members of JSON objects, with their types checked.
#include "io/data/tokenizer/bpe_read.h"
#include "base/utf8.h"
#include <string.h>

static mics_status wrong_type(const mics_json *json, const char *path, const char *key,
                              const mics_json_value *member, const char *expected)
{
    return mics_json_fail(
        json, path, MICS_ERR_FORMAT, "\"%s\" is %s, expected %s", key,
        member == NULL ? "missing" : mics_json_type_text(mics_json_type_of(member)), expected);
}

mics_status mics_read_bool(const mics_json *json, const mics_json_value *object, const char *path,
                           const char *key, bool *value_out)
{
    const mics_json_value *member = mics_json_get(object, key);
    if (member == NULL)
        return MICS_OK;
    if (mics_json_type_of(member) != MICS_JSON_BOOL)
        return wrong_type(json, path, key, member, "true or false");
    *value_out = mics_json_bool(member);
    return MICS_OK;
}

mics_status mics_read_text(const mics_json *json, const mics_json_value *object, const char *path,
                           const char *key, bool wanted, const char **text_out)
{
    const mics_json_value *member = mics_json_get(object, key);
    const char *text = mics_json_string(member);
    *text_out = text == NULL && wanted ? "" : text;
    if (text == NULL && (wanted || mics_json_type_of(member) != MICS_JSON_NULL))
        return wrong_type(json, path, key, member, "a string");
    return MICS_OK;
}

mics_status mics_read_char(const mics_json *json, const mics_json_value *object, const char *path,
                           const char *key, const char **text_out)
{
    MICS_TRY(mics_read_text(json, object, path, key, true, text_out));
    const size_t bytes = strlen(*text_out);
    if (bytes == 0 || (size_t)mics_utf8_char(*text_out, bytes) != bytes)
        return mics_json_fail(json, path, MICS_ERR_FORMAT,
                              "\"%s\" is \"%.40s\", expected one "
                              "character",
                              key, *text_out);
    return MICS_OK;
}

static mics_status read_type(const mics_json *json, const mics_json_value *object, const char *path,
                             const char **type_out)
{
    if (mics_json_type_of(object) != MICS_JSON_OBJECT)
        return mics_json_fail(json, path, MICS_ERR_FORMAT, "is %s, expected an object or null",
                              mics_json_type_text(mics_json_type_of(object)));
    return mics_read_text(json, object, path, "type", true, type_out);
}

mics_status mics_read_pattern(const mics_json *json, const mics_json_value *object,
                              const char *path, const char **text_out, bool *regex_out)
{
    const mics_json_value *pattern = mics_json_get(object, "pattern");
    *regex_out = mics_json_get(pattern, "Regex") != NULL;
    if (mics_json_count(pattern) != 1 || (!*regex_out && mics_json_get(pattern, "String") == NULL))
        return mics_json_fail(json, path, MICS_ERR_FORMAT,
                              "\"pattern\" is neither {\"Regex\": ...} nor {\"String\": ...}");
    return mics_read_text(json, pattern, path, *regex_out ? "Regex" : "String", true, text_out);
}

mics_status mics_read_prepend(const mics_json *json, const mics_json_value *object,
                              const char *path, mics_split_prepend *prepend_out)
{
    static const char *const names[] = {"never", "first", "always"};
    const char *name = NULL;
    bool prefix = true;
    MICS_TRY(mics_read_bool(json, object, path, "add_prefix_space", &prefix));
    MICS_TRY(mics_read_text(json, object, path, "prepend_scheme", false, &name));
    if (name == NULL) {
        *prepend_out = prefix ? MICS_SPLIT_PREPEND_ALWAYS : MICS_SPLIT_PREPEND_NEVER;
        return MICS_OK;
    }
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *prepend_out = (mics_split_prepend)i;
        if (prefix || *prepend_out == MICS_SPLIT_PREPEND_NEVER)
            return MICS_OK;
        return mics_json_fail(json, path, MICS_ERR_FORMAT,
                              "\"add_prefix_space\" is false and \"prepend_scheme\" \"%s\"", name);
    }
    return mics_json_fail(json, path, MICS_ERR_UNSUPPORTED,
                          "\"prepend_scheme\" is \"%.60s\"; known: always, first, never", name);
}

// Where reading a sequence stands.
typedef struct sequence {
    const mics_json *json;
    const char *path, *list;
    mics_read_step *step;
    void *ctx;
} sequence;

static mics_status read_at(const sequence *s, const mics_json_value *object, int32_t depth)
{
    enum { MAX_DEPTH = 8 };
    const char *type = "";
    MICS_TRY(read_type(s->json, object, s->path, &type));
    if (strcmp(type, "Sequence") != 0)
        return s->step(s->ctx, object, type);
    const mics_json_value *members = mics_json_get(object, s->list);
    if (mics_json_type_of(members) != MICS_JSON_ARRAY)
        return wrong_type(s->json, s->path, s->list, members, "an array");
    if (depth == MAX_DEPTH)
        return mics_json_fail(s->json, s->path, MICS_ERR_FORMAT, "over %d sequences in each other",
                              MAX_DEPTH);
    for (int32_t i = 0; i < mics_json_count(members); i++)
        MICS_TRY(read_at(s, mics_json_element(members, i), depth + 1));
    return MICS_OK;
}

mics_status mics_read_sequence(const mics_json *json, const char *path, const char *list,
                               mics_read_step *step, void *ctx)
{
    const mics_json_value *object = mics_json_at(json, path);
    const sequence s = {.json = json, .path = path, .list = list, .step = step, .ctx = ctx};
    return mics_json_type_of(object) == MICS_JSON_NULL ? MICS_OK : read_at(&s, object, 0);
}
