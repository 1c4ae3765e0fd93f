// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Values of honoured keys: each is of its key's type and in its range, and is stored in its field.
#include "base/text.h"
#include "config/keys.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LIST_BYTES = 400 };

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

int32_t mics_config_setting(const config *run, const key *row)
{
    const mics_optimizer_def *def = mics_optimizer_def_get(run->run.optimizer.kind);
    for (int32_t first = 0; first < def->settings; first++) {
        if (strcmp(def->setting[first].name, row->setting) == 0)
            return first;
    }
    return -1;
}

static void store_standard(config *run, const key *row)
{
    const int32_t first = mics_config_setting(run, row);
    const mics_optimizer standard = mics_optimizer_standard(run->run.optimizer.kind);
    for (int32_t i = first; first >= 0 && i < first + row->count; i++)
        run->run.optimizer.settings[i] = standard.settings[i];
}

void mics_config_store_default(config *run, const key *row)
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
    case KEY_SETTINGS:
        store_standard(run, row);
        break;
    case KEY_RECOMPUTE:
        run->run.recompute = mics_recompute_all(false);
        run->run.recompute_open = false;
        break;
    case KEY_SECTION:
    case KEY_OBJECT:
    case KEY_TEXTS:
    case KEY_SOURCES:
    case KEY_PHASES:
        break;
    }
}

// ---- values ----

// "must be 1, not 3; why", for a value outside what the row allows.
static mics_status fail_value(config *run, const key *row, mics_status status, const char *expected,
                              const mics_json_value *value)
{
    char text[LIST_BYTES / 4];
    mics_config_value_text(value, text, sizeof text);
    if (status == MICS_ERR_UNSUPPORTED)
        return mics_config_refuse(run, row->path, status, "must be %s, not %s%s%s", expected, text,
                                  row->refusal != NULL ? "; " : "",
                                  row->refusal != NULL ? row->refusal : "");
    return mics_json_fail(run->run.json, row->path, status, "must be %s, not %s%s%s", expected,
                          text, row->refusal != NULL ? "; " : "",
                          row->refusal != NULL ? row->refusal : "");
}

static mics_status fail_type(config *run, const key *row, const mics_json_value *value,
                             const char *expected)
{
    mics_json_type type = mics_json_type_of(value);
    if (type == MICS_JSON_STRING && strcmp(mics_json_string(value), "auto") == 0)
        return mics_config_refuse(
            run, row->path, MICS_ERR_INVALID,
            "cannot be \"auto\": nothing here could say what it should be; give %s", expected);
    return mics_json_fail(run->run.json, row->path, MICS_ERR_FORMAT, "must be %s, not %s", expected,
                          mics_json_type_text(type));
}

static mics_status fail_range(config *run, const key *row, const mics_json_value *value)
{
    char range[64];
    if (row->low == row->high)
        mics_text_format(range, sizeof range, "%.15g", row->low);
    else if (row->high > 1e18)
        mics_text_format(range, sizeof range, "%.15g or more", row->low);
    else
        mics_text_format(range, sizeof range, "%.15g to %.15g", row->low, row->high);
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
    if (!mics_json_is_number(value))
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
    if (!mics_json_is_number(value))
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

static mics_status take_setting(config *run, const key *row, int32_t index, double number,
                                const mics_json_value *value)
{
    const mics_optimizer_setting *setting =
        &mics_optimizer_def_get(run->run.optimizer.kind)->setting[index];
    char range[64];
    mics_text_format(range, sizeof range, "%s%.15g to %.15g",
                     row->count == 1 ? "" : "two numbers from ", setting->least, setting->most);
    if (!(number >= setting->least && number <= setting->most))
        return fail_value(run, row, MICS_ERR_INVALID, range, value);
    run->run.optimizer.settings[index] = number;
    return MICS_OK;
}

static mics_status take_settings(config *run, const key *row, const mics_json_value *value)
{
    const bool alone = row->count == 1;
    const int32_t first = mics_config_setting(run, row);
    const mics_optimizer_def *def = mics_optimizer_def_get(run->run.optimizer.kind);
    if (first < 0)
        return MICS_OK; // mics_config_fill_optimizer refuses it
    if (def->setting[first].is_switch) {
        if (mics_json_type_of(value) != MICS_JSON_BOOL)
            return fail_type(run, row, value, "true or false");
        run->run.optimizer.settings[first] = mics_json_bool(value) ? 1 : 0;
        return MICS_OK;
    }
    bool good = alone || (mics_json_type_of(value) == MICS_JSON_ARRAY &&
                          mics_json_count(value) == row->count);
    for (int32_t i = 0; good && i < row->count; i++)
        good = mics_json_is_number(alone ? value : mics_json_element(value, i));
    if (!good)
        return fail_type(run, row, value, alone ? "a number" : "two numbers, as in [0.9, 0.95]");
    for (int32_t i = 0; i < row->count; i++)
        MICS_TRY(take_setting(run, row, first + i,
                              mics_json_real(alone ? value : mics_json_element(value, i)), value));
    return MICS_OK;
}

// How many layers there are is known where the model is.
static mics_status take_recompute(config *run, const key *row, const mics_json_value *value)
{
    const bool words = mics_json_type_of(value) == MICS_JSON_STRING;
    char number[LIST_BYTES / 4];
    mics_config_value_text(value, number, sizeof number);
    run->run.recompute_open = false;
    if (mics_json_type_of(value) == MICS_JSON_BOOL)
        run->run.recompute = mics_recompute_all(mics_json_bool(value));
    else if (!mics_recompute_parse(words ? mics_json_string(value) : number, &run->run.recompute,
                                   &run->run.recompute_open))
        return fail_value(
            run, row, MICS_ERR_INVALID,
            "true, false, \"auto\", a number of layers from 1 on, \"attention\", \"mlp\" or "
            "these three with \"+\", as in \"attention+mlp+12\"",
            value);
    return MICS_OK;
}

mics_status mics_config_take(config *run, const key *row, const mics_json_value *value)
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
    case KEY_SOURCES:
        return mics_config_take_texts(run, row, value);
    case KEY_RECOMPUTE:
        return take_recompute(run, row, value);
    case KEY_SETTINGS:
        return take_settings(run, row, value);
    case KEY_PHASES:
        return MICS_OK; // read before (phases.c)
    case KEY_SECTION:
    case KEY_OBJECT:
        break;
    }
    return fail_type(run, row, value,
                     row->automatic != NULL
                         ? "an object, as in {\"params\": 2, \"optimizer\": 4}, or \"auto\""
                         : "an object");
}
