// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "config/peft.h"
#include "base/file.h"
#include "base/text.h"
#include "config/keys.h"
#include "config/value.h"
#include "mics/builder.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

bool mics_peft_is_folder(const char *path)
{
    char file[MICS_FOLDER_BYTES];
    mics_text_format(file, sizeof file, "%s/" MICS_PEFT_CONFIG, path);
    return mics_file_is_there(file);
}

// ---- lists of modules ----

static bool is_all_linear(const mics_json_value *value)
{
    const char *text = mics_json_type_of(value) == MICS_JSON_ARRAY && mics_json_count(value) == 1
                           ? mics_json_string(mics_json_element(value, 0))
                           : mics_json_string(value);
    return text != NULL && strcmp(text, MICS_PEFT_ALL_LINEAR) == 0;
}

mics_status mics_peft_refuse_pattern(const mics_json *json, const char *path)
{
    return mics_json_fail(json, path, MICS_ERR_UNSUPPORTED,
                          "\"%s\" is a regular expression to PEFT, and these are not built; give a "
                          "list of modules, as [\"q_proj\", \"v_proj\"], or \"all-linear\"",
                          mics_json_string(mics_json_at(json, path)));
}

mics_status mics_peft_modules(mics_memory *memory, const mics_json *json, const char *path,
                              const char ***texts_out, int32_t *count_out)
{
    const mics_json_value *value = mics_json_at(json, path);
    *count_out = 0;
    if (mics_json_type_of(value) == MICS_JSON_NULL || is_all_linear(value))
        return MICS_OK;
    if (mics_json_type_of(value) == MICS_JSON_STRING)
        return mics_peft_refuse_pattern(json, path);
    const int32_t count = mics_json_count(value);
    MICS_TRY(MICS_NEW(memory, count, texts_out));
    for (int32_t i = 0; i < count; i++) {
        (*texts_out)[i] = mics_json_string(mics_json_element(value, i));
        if ((*texts_out)[i] == NULL)
            return mics_json_fail(json, path, MICS_ERR_FORMAT, "must hold names of modules alone");
    }
    *count_out = count;
    return MICS_OK;
}

// ---- the file ----

// How values began that the file has; other ways than these change the base, too.
static bool is_known_init(const char *name, const mics_json_value *value)
{
    return strcmp(name, "init_lora_weights") == 0 &&
           (mics_json_type_of(value) == MICS_JSON_STRING
                ? mics_text_is_among(mics_json_string(value), "gaussian|orthogonal")
                : mics_json_type_of(value) == MICS_JSON_BOOL);
}

// A key that is neither honoured nor known must be switched off: newer versions have more.
static mics_status check_member(const mics_json *json, const char *name,
                                const mics_json_value *value)
{
    char path[CONFIG_PATH_BYTES], text[VALUE_TEXT_BYTES];
    mics_text_format(path, sizeof path, "adapter.%s", name);
    const int32_t foreign = mics_config_find_foreign(path);
    if (mics_config_find(path) >= 0 || mics_json_type_of(value) == MICS_JSON_NULL ||
        is_known_init(name, value) ||
        (foreign >= 0 ? mics_config_foreign_allows(foreign, value) : mics_config_value_off(value)))
        return MICS_OK;
    return mics_json_fail(json, name, MICS_ERR_UNSUPPORTED, "%s cannot be honoured: %s",
                          mics_config_value_text(value, text, sizeof text),
                          foreign >= 0 ? mics_config_foreign(foreign).why : "it is not known here");
}

static mics_status check_members(const mics_json *json)
{
    const char *name = NULL;
    const mics_json_value *value = NULL;
    if (mics_json_type_of(mics_json_root(json)) != MICS_JSON_OBJECT)
        return mics_json_fail(json, NULL, MICS_ERR_FORMAT, "must be an object");
    while ((value = mics_json_next(mics_json_root(json), &name)) != NULL)
        MICS_TRY(check_member(json, name, value));
    return MICS_OK;
}

// One that is absent is 0.
static mics_status read_number(const mics_json *json, const char *path, double *number_out)
{
    const mics_json_value *value = mics_json_at(json, path);
    *number_out = mics_json_real(value);
    return mics_json_is_number(value) || mics_json_type_of(value) == MICS_JSON_NULL
               ? MICS_OK
               : mics_json_fail(json, path, MICS_ERR_FORMAT, "must be a number");
}

static mics_status read_config(mics_memory *memory, mics_peft *peft)
{
    const mics_json *json = peft->json;
    mics_lora_spec *spec = &peft->spec;
    const mics_json_value *stabilized = mics_json_at(json, "use_rslora");
    MICS_TRY(check_members(json));
    MICS_TRY(read_number(json, "lora_alpha", &spec->alpha));
    MICS_TRY(read_number(json, "lora_dropout", &spec->dropout));
    if (!mics_config_value_int(mics_json_at(json, "r"), &spec->rank) || spec->rank < 1 ||
        spec->rank > MICS_LORA_MAX_RANK)
        return mics_json_fail(json, "r", MICS_ERR_INVALID, "must be a whole number from 1 to %d",
                              MICS_LORA_MAX_RANK);
    if (mics_json_type_of(stabilized) != MICS_JSON_BOOL && !mics_config_value_off(stabilized))
        return mics_json_fail(json, "use_rslora", MICS_ERR_FORMAT, "must be true or false");
    spec->rank_stabilized = mics_json_bool(stabilized);
    peft->base = mics_json_string(mics_json_at(json, "base_model_name_or_path"));
    MICS_TRY(
        mics_peft_modules(memory, json, "target_modules", &peft->targets, &spec->target_count));
    MICS_TRY(mics_peft_modules(memory, json, "modules_to_save", &peft->saved, &spec->saved_count));
    spec->targets = peft->targets;
    spec->saved = peft->saved;
    return MICS_OK;
}

mics_status mics_peft_init(mics_memory *memory, const char *folder, mics_peft *peft_out)
{
    char *path = NULL;
    *peft_out = (mics_peft){0};
    MICS_TRY(mics_file_join(memory, folder, MICS_PEFT_CONFIG, &path));
    mics_status status = mics_json_load(memory, path, MICS_FILE_MAX_WHOLE, &peft_out->json);
    if (status == MICS_OK)
        status = read_config(memory, peft_out);
    mics_free(memory, path);
    return status;
}

mics_status mics_peft_init_stored(mics_memory *memory, const char *name,
                                  const mics_json_value *adapter, mics_peft *peft_out)
{
    mics_text text = {.memory = memory};
    *peft_out = (mics_peft){0};
    mics_json_write(&text, adapter);
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_json_parse(memory, name, text.bytes, text.used, &peft_out->json);
    if (status == MICS_OK)
        status = read_config(memory, peft_out);
    mics_text_fini(&text);
    return status;
}

void mics_peft_fini(mics_memory *memory, mics_peft *peft)
{
    mics_free(memory, peft->targets);
    mics_free(memory, peft->saved);
    mics_json_close(peft->json);
    *peft = (mics_peft){0};
}
