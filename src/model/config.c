// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What builders read from Hugging Face's config.json.
#include "base/text.h"
#include "model/builders.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FOUND_BYTES = 80 };

static const mics_json_value *lookup(config_reader *reader, const char *key)
{
    return reader->status == MICS_OK ? mics_json_at(reader->json, key) : NULL;
}

// What stands there instead, for errors. Returns `text`.
static const char *found(const mics_json_value *value, char text[FOUND_BYTES])
{
    mics_json_type type = mics_json_type_of(value);
    double real = mics_json_real(value);
    bool is_whole = fabs(real) < 1e15 && real == floor(real); // 4.0 is no integer
    if (type == MICS_JSON_INT)
        snprintf(text, FOUND_BYTES, "%lld", (long long)mics_json_int(value));
    else if (type == MICS_JSON_REAL)
        mics_text_format(text, FOUND_BYTES, "the real %.15g%s", real, is_whole ? ".0" : "");
    else if (type == MICS_JSON_STRING)
        snprintf(text, FOUND_BYTES, "\"%.60s\"", mics_json_string(value));
    else if (type == MICS_JSON_BOOL)
        snprintf(text, FOUND_BYTES, "%s", mics_json_bool(value) ? "true" : "false");
    else
        snprintf(text, FOUND_BYTES, "%s", mics_json_type_text(type));
    return text;
}

int64_t config_int(config_reader *reader, const char *key, int64_t min, int64_t max,
                   int64_t fallback)
{
    char text[FOUND_BYTES];
    const mics_json_value *value = lookup(reader, key);
    if (reader->status != MICS_OK)
        return fallback;
    if (value == NULL || mics_json_type_of(value) == MICS_JSON_NULL) {
        if (fallback < min)
            reader->status = mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                                            "missing; it must be an integer");
        return fallback;
    }
    if (mics_json_type_of(value) != MICS_JSON_INT || mics_json_int(value) < min ||
        mics_json_int(value) > max) {
        reader->status = mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                                        "must be an integer from %lld to %lld, not %s",
                                        (long long)min, (long long)max, found(value, text));
        return fallback;
    }
    return mics_json_int(value);
}

int64_t config_int_of(config_reader *reader, const char *const keys[2], int64_t min, int64_t max)
{
    const bool aliased = config_is_said(reader, keys[1]);
    const char *key = aliased && !config_is_said(reader, keys[0]) ? keys[1] : keys[0];
    const int64_t value = config_int(reader, key, min, max, min - 1);
    const int64_t other = aliased ? config_int(reader, keys[1], min, max, value) : value;
    if (reader->status == MICS_OK && other != value)
        reader->status = mics_json_fail(reader->json, keys[1], MICS_ERR_INVALID,
                                        "is %lld, but %s, another name of it, is %lld; which "
                                        "holds? keep one of them",
                                        (long long)other, keys[0], (long long)value);
    return value;
}

double config_real(config_reader *reader, const char *key, double min, double max, double fallback)
{
    char text[FOUND_BYTES];
    const mics_json_value *value = lookup(reader, key);
    if (value == NULL || mics_json_type_of(value) == MICS_JSON_NULL)
        return fallback;
    if (!mics_json_is_number(value) ||
        !(mics_json_real(value) >= min && mics_json_real(value) <= max)) {
        reader->status =
            mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                           "must be a number from %g to %g, not %s", min, max, found(value, text));
        return fallback;
    }
    return mics_json_real(value);
}

bool config_bool(config_reader *reader, const char *key, bool fallback)
{
    char text[FOUND_BYTES];
    const mics_json_value *value = lookup(reader, key);
    if (value == NULL || mics_json_type_of(value) == MICS_JSON_NULL)
        return fallback;
    if (mics_json_type_of(value) != MICS_JSON_BOOL) {
        reader->status = mics_json_fail(reader->json, key, MICS_ERR_INVALID,
                                        "must be true or false, not %s", found(value, text));
        return fallback;
    }
    return mics_json_bool(value);
}

// "a|b" as `"a" or "b"`.
static const char *options_text(const char *texts, char *list, size_t capacity)
{
    size_t used = 0;
    list[0] = '\0';
    while (*texts != '\0' && used < capacity) {
        int length = (int)strcspn(texts, "|");
        int written = snprintf(list + used, capacity - used, "%s\"%.*s\"", used > 0 ? " or " : "",
                               length, texts);
        used += (size_t)written;
        texts += length + (texts[length] == '|');
    }
    return list;
}

void config_require(config_reader *reader, const char *key, const char *texts)
{
    char text[FOUND_BYTES], list[128];
    const mics_json_value *value = lookup(reader, key);
    if (value == NULL)
        return;
    if (!mics_text_is_among(mics_json_string(value), texts))
        reader->status = mics_json_fail(reader->json, key, MICS_ERR_UNSUPPORTED,
                                        "only %s can be honoured, not %s",
                                        options_text(texts, list, sizeof list), found(value, text));
}

bool config_has(config_reader *reader, const char *key)
{
    return lookup(reader, key) != NULL;
}

bool config_is_said(config_reader *reader, const char *key)
{
    return mics_json_type_of(lookup(reader, key)) != MICS_JSON_NULL;
}

float config_dropout(config_reader *reader, const char *key, bool ignore_dropout)
{
    const double dropout = ignore_dropout ? 0 : config_real(reader, key, 0, 1, 0);
    if (reader->status == MICS_OK && dropout >= 1)
        reader->status = mics_json_fail(reader->json, key, MICS_ERR_UNSUPPORTED,
                                        "a dropout of 1 drops everything; a probability below 1 "
                                        "works");
    return (float)dropout;
}

void config_check_heads(config_reader *reader, mics_heads heads)
{
    const char *dim_key = config_is_said(reader, "head_dim") ? "head_dim" : "num_attention_heads";
    if (reader->status == MICS_OK && heads.query % heads.key_value != 0)
        reader->status =
            mics_json_fail(reader->json, "num_key_value_heads", MICS_ERR_INVALID,
                           "%lld key-value heads do not divide num_attention_heads = %lld",
                           (long long)heads.key_value, (long long)heads.query);
    if (reader->status == MICS_OK &&
        (heads.dim < 2 || heads.dim % 2 != 0 || heads.dim > CONFIG_MAX_HEAD_DIM))
        reader->status = mics_json_fail(
            reader->json, dim_key, MICS_ERR_INVALID,
            "a head has %lld elements; it must be an even number from 2 to %d, as pairs of them "
            "turn",
            (long long)heads.dim, CONFIG_MAX_HEAD_DIM);
}
