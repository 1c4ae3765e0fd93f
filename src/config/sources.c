// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Lists of files, and of files with weights.
#include "config/keys.h"
#include "config/value.h"
#include <string.h>

enum { MAX_WEIGHTED = 1024, VALUE_BYTES = 160 };

static const char form[] = "{\"path\": \"web/*.jsonl.zst\", \"weight\": 0.7}";

static mics_status fail_element(const config *run, const key *row, int32_t index, const char *what,
                                const mics_json_value *value)
{
    char text[VALUE_BYTES];
    return mics_json_fail(run->run.json, row->path, MICS_ERR_FORMAT,
                          "number %d %s; it is %s, and must be as %s", (int)index + 1, what,
                          mics_config_value_text(value, text, sizeof text), form);
}

static bool is_name(const mics_json_value *value)
{
    return mics_json_type_of(value) == MICS_JSON_STRING && *mics_json_string(value) != '\0';
}

static mics_status take_weighted(config *run, const key *row, const mics_json_value *value,
                                 int32_t index, text_list *list)
{
    const mics_json_value *path = mics_json_get(value, "path");
    const mics_json_value *weight = mics_json_get(value, "weight");
    if (mics_json_type_of(value) != MICS_JSON_OBJECT)
        return fail_element(run, row, index, "has no weight, and others do", value);
    if (!is_name(path))
        return fail_element(run, row, index, "has no \"path\"", value);
    if (!mics_json_is_number(weight))
        return fail_element(run, row, index, "has no \"weight\" that is a number", value);
    if (mics_json_count(value) != 2)
        return fail_element(run, row, index, "has other keys than \"path\" and \"weight\"", value);
    const double number = mics_json_real(weight);
    if (!(number >= 1e-9 && number <= 1e9))
        return fail_element(run, row, index, "has a weight that is not from 1e-9 to 1e9", value);
    list->texts[index] = mics_json_string(path);
    list->weights[index] = number;
    return MICS_OK;
}

static mics_status take_name(config *run, const key *row, const mics_json_value *text,
                             int32_t index, text_list *list)
{
    if (!is_name(text))
        return mics_json_fail(run->run.json, row->path, MICS_ERR_FORMAT,
                              "must hold names alone%s%s; number %d is %s",
                              row->type == KEY_SOURCES ? ", or objects alone as " : "",
                              row->type == KEY_SOURCES ? form : "", (int)index + 1,
                              mics_json_type_of(text) == MICS_JSON_STRING
                                  ? "an empty string"
                                  : mics_json_type_text(mics_json_type_of(text)));
    list->texts[index] = mics_json_string(text);
    return MICS_OK;
}

static bool is_of_files(const key *row)
{
    return strncmp(row->path, "data.", 5) == 0;
}

mics_status mics_config_take_texts(config *run, const key *row, const mics_json_value *value)
{
    const bool alone = mics_json_type_of(value) == MICS_JSON_STRING;
    text_list *list = (text_list *)((char *)run + row->at);
    if (!alone && mics_json_type_of(value) != MICS_JSON_ARRAY)
        return mics_json_fail(run->run.json, row->path, MICS_ERR_FORMAT,
                              "must be an array of strings, not %s",
                              mics_json_type_text(mics_json_type_of(value)));
    const int32_t count = alone ? 1 : mics_json_count(value);
    const bool weighted = row->type == KEY_SOURCES && !alone && count > 0 &&
                          mics_json_type_of(mics_json_element(value, 0)) == MICS_JSON_OBJECT;
    const double most = weighted ? MAX_WEIGHTED : row->high;
    if ((double)count < row->low || (double)count > most)
        return mics_json_fail(run->run.json, row->path, MICS_ERR_INVALID,
                              "must name %.0f to %.0f %s, not %d", row->low, most,
                              weighted           ? "files, globs or folders with weights"
                              : is_of_files(row) ? "files"
                                                 : "of them",
                              (int)count);
    MICS_TRY(MICS_NEW(run->memory, count, &list->texts));
    list->count = count;
    if (weighted)
        MICS_TRY(MICS_NEW(run->memory, count, &list->weights));
    for (int32_t i = 0; i < count; i++) {
        const mics_json_value *element = alone ? value : mics_json_element(value, i);
        MICS_TRY(weighted ? take_weighted(run, row, element, i, list)
                          : take_name(run, row, element, i, list));
    }
    return MICS_OK;
}
