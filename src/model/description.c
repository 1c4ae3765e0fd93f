// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a program's own builder reads of its description.
#include "base/json.h"
#include "mics/model.h"

static mics_status find(const mics_json *description, const char *path, mics_json_type type,
                        const mics_json_value **value_out)
{
    const mics_json_value *value = mics_json_at(description, path);
    const mics_json_type found = mics_json_type_of(value);
    if (found != type && !(type == MICS_JSON_REAL && found == MICS_JSON_INT))
        return mics_json_fail(description, path, MICS_ERR_INVALID, "must be %s, and is %s",
                              mics_json_type_text(type),
                              value == NULL ? "missing" : mics_json_type_text(found));
    *value_out = value;
    return MICS_OK;
}

mics_status mics_description_int(const mics_json *description, const char *path, int64_t *value_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(find(description, path, MICS_JSON_INT, &value));
    *value_out = mics_json_int(value);
    return MICS_OK;
}

mics_status mics_description_real(const mics_json *description, const char *path, double *value_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(find(description, path, MICS_JSON_REAL, &value));
    *value_out = mics_json_real(value);
    return MICS_OK;
}

mics_status mics_description_text(const mics_json *description, const char *path,
                                  const char **text_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(find(description, path, MICS_JSON_STRING, &value));
    *text_out = mics_json_string(value);
    return MICS_OK;
}

mics_status mics_description_bool(const mics_json *description, const char *path, bool *value_out)
{
    const mics_json_value *value = NULL;
    MICS_TRY(find(description, path, MICS_JSON_BOOL, &value));
    *value_out = mics_json_bool(value);
    return MICS_OK;
}

int32_t mics_description_count(const mics_json *description, const char *path)
{
    return mics_json_count(mics_json_at(description, path));
}

bool mics_description_has(const mics_json *description, const char *path)
{
    return mics_json_at(description, path) != NULL;
}
