// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Single values of the files of others, put where the keys here are.
#include "config/adopt.h"
#include "config/value.h"
#include <stdio.h>
#include <string.h>

enum { TEXT_BYTES = 4096 };

mics_status mics_adopt_switch(config *run, const char *path, const mics_json_value *value,
                              bool *on_out)
{
    const mics_json_type type = mics_json_type_of(value);
    *on_out = mics_json_bool(value);
    return type == MICS_JSON_BOOL || type == MICS_JSON_NULL
               ? MICS_OK
               : mics_config_refuse(run, path, MICS_ERR_FORMAT,
                                    "must be true or false, without quotes");
}

const char *mics_adopt_word(const mics_json_value *value)
{
    const bool no = mics_json_type_of(value) == MICS_JSON_BOOL && !mics_json_bool(value);
    return no ? "no" : mics_json_string(value);
}

bool mics_adopt_is_auto(const mics_json_value *value)
{
    const char *text = mics_json_string(value);
    return text != NULL && strcmp(text, "auto") == 0;
}

mics_status mics_adopt_open_sharding(config *run)
{
    return mics_adopt_is_auto(mics_adopt_at(run, "sharding"))
               ? mics_json_set(run->run.json, "sharding", "{}")
               : MICS_OK;
}

bool mics_adopt_has(const config *run, const char *path)
{
    return mics_json_type_of(mics_adopt_at(run, path)) != MICS_JSON_NULL;
}

static bool is_filled(const mics_json_value *value)
{
    const char *text = mics_json_string(value);
    return mics_json_count(value) > 0 || (text != NULL && *text != '\0');
}

bool mics_adopt_has_deepspeed(const config *run)
{
    return is_filled(mics_adopt_at(run, "deepspeed")) ||
           is_filled(mics_adopt_at(run, "deepspeed_config"));
}

bool mics_adopt_says(const config *run, const char *path)
{
    return mics_adopt_has(run, path) && !mics_adopt_is_auto(mics_adopt_at(run, path));
}

// Whether --set gave the value, and not the file.
static bool was_set(const config *run, const char *path)
{
    char source[CONFIG_PATH_BYTES];
    return mics_json_source(run->run.json, path, source, sizeof source) == path &&
           mics_json_line(run->run.json, path) == 0;
}

// Whether a value and a JSON text say the same; 1 and 1.0 do.
static mics_status is_same(const config *run, const mics_json_value *value, const char *text,
                           bool *same_out)
{
    char written[TEXT_BYTES], other[TEXT_BYTES], array[TEXT_BYTES + 2]; // a root is no scalar
    mics_json *parsed = NULL;
    const int bytes = snprintf(array, sizeof array, "[%s]", text);
    *same_out = false;
    if ((size_t)bytes >= sizeof array)
        return MICS_OK;
    MICS_TRY(
        mics_json_parse(run->memory, mics_json_name(run->run.json), array, (size_t)bytes, &parsed));
    const mics_json_value *said = mics_json_element(mics_json_root(parsed), 0);
    if (mics_json_is_number(value) && mics_json_is_number(said))
        *same_out = mics_json_real(value) == mics_json_real(said);
    else
        *same_out = strcmp(mics_config_value_text(value, written, sizeof written),
                           mics_config_value_text(said, other, sizeof other)) == 0;
    mics_json_close(parsed);
    return MICS_OK;
}

static mics_status set(config *run, const char *target, const char *text, const char *source,
                       const char *origin)
{
    const int32_t index = mics_config_find(target);
    if (index >= 0)
        run->adopted[index] = origin;
    return mics_json_set_from(run->run.json, target, text, source);
}

// True when a section above `target` is there and is no object: the check says so better.
static bool is_blocked(const config *run, const char *target)
{
    char above[CONFIG_PATH_BYTES];
    for (const char *dot = strchr(target, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
        snprintf(above, sizeof above, "%.*s", (int)(dot - target), target);
        const mics_json_value *value = mics_adopt_at(run, above);
        if (value != NULL && mics_json_type_of(value) != MICS_JSON_OBJECT)
            return true;
    }
    return false;
}

mics_status mics_adopt_put(config *run, const char *target, const char *text, const char *source,
                           const char *origin)
{
    char value[CONFIG_PATH_BYTES], written[CONFIG_PATH_BYTES];
    bool same = false;
    if (is_blocked(run, target))
        return MICS_OK;
    if (!mics_adopt_says(run, target))
        return set(run, target, text, source, origin);
    if ((was_set(run, target) && !was_set(run, source)) || strcmp(text, "\"auto\"") == 0)
        return MICS_OK;
    MICS_TRY(is_same(run, mics_adopt_at(run, target), text, &same));
    if (same)
        return MICS_OK;
    mics_config_value_text(mics_adopt_at(run, target), value, sizeof value);
    return mics_config_refuse(
        run, source, MICS_ERR_INVALID, "%s contradicts %s %s; leave one out", text,
        mics_json_source(run->run.json, target, written, sizeof written), value);
}

mics_status mics_adopt_default_of(config *run, const char *target, const char *text,
                                  const char *origin, bool only_auto)
{
    const bool given = mics_adopt_has(run, target);
    if (is_blocked(run, target) || mics_adopt_says(run, target) || (only_auto && !given))
        return MICS_OK;
    char source[CONFIG_PATH_BYTES]; // of "auto"
    snprintf(source, sizeof source, "%s", target);
    const char *from = mics_json_source(run->run.json, target, source, sizeof source);
    char kept[CONFIG_PATH_BYTES];
    snprintf(kept, sizeof kept, "%s", from);
    return set(run, target, text, kept, origin);
}

mics_status mics_adopt_default(config *run, const char *target, const char *text, bool only_auto)
{
    return mics_adopt_default_of(run, target, text, "auto: default of Hugging Face's Trainer",
                                 only_auto);
}
