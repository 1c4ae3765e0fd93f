// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Single values of a run file.
#include "config/value.h"
#include "base/text.h"
#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TWO_63 9223372036854775808.0
#define TWO_53 9007199254740992.0

bool mics_config_value_int(const mics_json_value *value, int64_t *number_out)
{
    double number = mics_json_real(value);
    if (mics_json_type_of(value) == MICS_JSON_INT) {
        *number_out = mics_json_int(value);
        return true;
    }
    if (mics_json_type_of(value) != MICS_JSON_REAL || !(fabs(number) <= TWO_53) ||
        number != floor(number))
        return false;
    *number_out = (int64_t)number;
    return true;
}

// Bytes of one unit ("", "B", "K", "KB", "KiB", ...), or 0.
static double unit_bytes(const char *unit)
{
    static const char prefixes[] = "KMGT";
    if (*unit == '\0' || strcasecmp(unit, "b") == 0)
        return 1.0;
    const char *prefix = strchr(prefixes, toupper((unsigned char)*unit));
    if (prefix == NULL)
        return 0.0;
    double power = (double)(prefix - prefixes + 1);
    if (unit[1] == '\0' || strcasecmp(unit + 1, "ib") == 0)
        return pow(1024.0, power);
    return strcasecmp(unit + 1, "b") == 0 ? pow(1000.0, power) : 0.0;
}

bool mics_config_bytes_parse(const char *text, int64_t *bytes_out)
{
    double number = 0.0, scale = 0.0; // scale: of the next digit behind the dot; 0 before it
    const char *at = text;
    if (!isdigit((unsigned char)*at))
        return false;
    for (; isdigit((unsigned char)*at) || (*at == '.' && scale == 0.0); at++) {
        if (*at == '.') {
            scale = 0.1;
        } else if (scale == 0.0) {
            number = number * 10.0 + (*at - '0');
        } else {
            number += scale * (*at - '0');
            scale /= 10.0;
        }
    }
    while (*at == ' ')
        at++;
    double bytes = number * unit_bytes(at);
    if (unit_bytes(at) == 0.0 || !(bytes < TWO_63))
        return false;
    *bytes_out = (int64_t)bytes;
    return true;
}

bool mics_config_value_off(const mics_json_value *value)
{
    const char *name = NULL;
    const mics_json_value *member = NULL;
    bool off = true;
    switch (mics_json_type_of(value)) {
    case MICS_JSON_NULL:
        return true;
    case MICS_JSON_BOOL:
        return !mics_json_bool(value);
    case MICS_JSON_INT:
    case MICS_JSON_REAL:
        return mics_json_real(value) == 0.0;
    case MICS_JSON_STRING:
        return *mics_json_string(value) == '\0' ||
               strcasecmp(mics_json_string(value), "none") == 0 ||
               strcmp(mics_json_string(value), "auto") == 0;
    case MICS_JSON_ARRAY:
        for (int32_t i = 0; off && i < mics_json_count(value); i++)
            off = mics_config_value_off(mics_json_element(value, i));
        return off;
    case MICS_JSON_OBJECT:
        break;
    }
    if (mics_json_get(value, "enabled") != NULL)
        return mics_config_value_off(mics_json_get(value, "enabled"));
    if (mics_json_get(value, "device") != NULL)
        return mics_config_value_off(mics_json_get(value, "device"));
    while (off && (member = mics_json_next(value, &name)) != NULL)
        off = mics_config_value_off(member);
    return off;
}

bool mics_config_value_one(const mics_json_value *value)
{
    static const char *const degrees[] = {"autotp_size", "tp_size", "stages"};
    if (mics_config_value_off(value) || mics_json_real(value) == 1.0)
        return true;
    bool one =
        mics_json_type_of(value) == MICS_JSON_OBJECT && mics_json_get(value, "enabled") == NULL;
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        const mics_json_value *degree = mics_json_get(value, degrees[i]);
        one = one && (mics_config_value_off(degree) || mics_json_real(degree) == 1.0);
    }
    return one;
}

int mics_config_index_of(const char *const *choices, const char *text)
{
    int at = 0;
    while (choices[at] != NULL && strcmp(choices[at], text) != 0)
        at++;
    assert(choices[at] != NULL);
    return at;
}

// ---- writing ----

typedef struct writer {
    char *text;
    size_t capacity, used;
    bool cut;
} writer;

static writer begin(char *text, size_t capacity)
{
    text[0] = '\0';
    return (writer){.text = text, .capacity = capacity};
}

static void put(writer *out, const char *text)
{
    size_t bytes = strlen(text);
    if (out->cut)
        return;
    if (out->used + bytes + sizeof "..." > out->capacity) { // space for the dots stays
        out->cut = true;
        text = "...";
        bytes = out->used + sizeof "..." > out->capacity ? 0 : strlen(text);
    }
    memcpy(out->text + out->used, text, bytes);
    out->used += bytes;
    out->text[out->used] = '\0';
}

static void put_string(writer *out, const char *string)
{
    put(out, "\"");
    for (const char *at = string; *at != '\0' && !out->cut;) {
        char letter[8] = {0};
        size_t bytes = 1;
        if ((unsigned char)*at < ' ' || *at == 127) {
            snprintf(letter, sizeof letter, "\\u%04x", (unsigned char)*at);
        } else {
            size_t begin = *at == '"' || *at == '\\' ? 1 : 0;
            letter[0] = '\\';
            while (bytes < 4 && ((unsigned char)at[bytes] & 0xc0) == 0x80) // a UTF-8 letter whole
                bytes++;
            memcpy(letter + begin, at, bytes);
        }
        put(out, letter);
        at += bytes;
    }
    put(out, "\"");
}

static void put_value(writer *out, const mics_json_value *value);

static void put_array(writer *out, const mics_json_value *array)
{
    put(out, "[");
    for (int32_t i = 0; i < mics_json_count(array) && !out->cut; i++) {
        put(out, i == 0 ? "" : ", ");
        put_value(out, mics_json_element(array, i)); // nested at most 64 levels
    }
    put(out, "]");
}

static void put_object(writer *out, const mics_json_value *object)
{
    const char *name = NULL;
    const mics_json_value *member = NULL;
    const char *between = "";
    put(out, "{");
    while (!out->cut && (member = mics_json_next(object, &name)) != NULL) {
        put(out, between);
        put_string(out, name);
        put(out, ": ");
        put_value(out, member); // nested at most 64 levels
        between = ", ";
    }
    put(out, "}");
}

static void put_value(writer *out, const mics_json_value *value)
{
    char number[32];
    switch (mics_json_type_of(value)) {
    case MICS_JSON_NULL:
        put(out, "null");
        break;
    case MICS_JSON_BOOL:
        put(out, mics_json_bool(value) ? "true" : "false");
        break;
    case MICS_JSON_INT:
        snprintf(number, sizeof number, "%lld", (long long)mics_json_int(value));
        put(out, number);
        break;
    case MICS_JSON_REAL:
        put(out, mics_text_real(mics_json_real(value), number, sizeof number));
        break;
    case MICS_JSON_STRING:
        put_string(out, mics_json_string(value));
        break;
    case MICS_JSON_ARRAY:
        put_array(out, value);
        break;
    case MICS_JSON_OBJECT:
        put_object(out, value);
        break;
    }
}

bool mics_config_value_whole(const mics_json_value *value, char *text, size_t capacity)
{
    writer out = begin(text, capacity);
    put_value(&out, value);
    return !out.cut;
}

char *mics_config_value_text(const mics_json_value *value, char *text, size_t capacity)
{
    mics_config_value_whole(value, text, capacity);
    return text;
}

char *mics_config_string_text(const char *string, char *text, size_t capacity)
{
    writer out = begin(text, capacity);
    put_string(&out, string);
    return text;
}

char *mics_config_strings_text(const char *const *strings, int32_t count, char *text,
                               size_t capacity)
{
    writer out = begin(text, capacity);
    put(&out, "[");
    for (int32_t i = 0; i < count && !out.cut; i++) {
        put(&out, i == 0 ? "" : ", ");
        put_string(&out, strings[i]);
    }
    put(&out, "]");
    return text;
}

char *mics_config_sources_text(const char *const *paths, const double *weights, int32_t count,
                               char *text, size_t capacity)
{
    writer out = begin(text, capacity);
    char number[40];
    if (weights == NULL)
        return mics_config_strings_text(paths, count, text, capacity);
    put(&out, "[");
    for (int32_t i = 0; i < count && !out.cut; i++) {
        put(&out, i == 0 ? "{\"path\": " : ", {\"path\": ");
        put_string(&out, paths[i]);
        put(&out, ", \"weight\": ");
        put(&out, mics_text_real(weights[i], number, sizeof number));
        put(&out, "}");
    }
    put(&out, "]");
    return text;
}
