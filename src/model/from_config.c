// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The builder that a Hugging Face config.json names by its model_type.
#include "model/from_config.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "model/builders.h"
#include <stdio.h>
#include <string.h>

typedef mics_status (*builder)(mics_memory *memory, config_reader *reader, bool ignore_dropout,
                               mics_model **model_out);

typedef struct family_row {
    mics_family family;
    builder build;
} family_row;

#define ROW(type, class_name, layers_key) {{#type, class_name, layers_key}, build_##type},
static const family_row families[] = {MODEL_FAMILIES(ROW)};

#define NAME(type, class_name, layers_key) ", \"" #type "\""
static const char names[] = MODEL_FAMILIES(NAME);

static const family_row *find_family(const char *model_type)
{
    for (size_t i = 0; model_type != NULL && i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].family.model_type, model_type) == 0)
            return &families[i];
    }
    return NULL;
}

bool mics_model_family(const char *model_type, mics_family *family_out)
{
    const family_row *row = find_family(model_type);
    if (row != NULL)
        *family_out = row->family;
    return row != NULL;
}

// What no family here has, by the keys that say it: "; it needs latent attention (kv_lora_rank)".
static const char *needs_text(const mics_json *config, char *text, size_t capacity)
{
    static const struct {
        const char *key, *what;
    } needs[] = {{"kv_lora_rank", "latent attention"},
                 {"n_shared_experts", "DeepSeek's shared experts"},
                 {"n_routed_experts", "DeepSeek's routing"}};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof needs / sizeof needs[0] && used < capacity; i++) {
        if (mics_json_type_of(mics_json_at(config, needs[i].key)) == MICS_JSON_NULL)
            continue;
        used += (size_t)snprintf(text + used, capacity - used, "%s%s (%s)",
                                 used == 0 ? "; it needs " : ", ", needs[i].what, needs[i].key);
    }
    return text;
}

static mics_status find_builder(const mics_json *config, builder *build_out)
{
    char found[80] = "missing", needs[192];
    const mics_json_value *value = mics_json_at(config, "model_type");
    const char *type = mics_json_string(value);
    const family_row *row = find_family(type);
    if (row != NULL) {
        *build_out = row->build;
        return MICS_OK;
    }
    if (type != NULL)
        snprintf(found, sizeof found, "\"%.60s\" is not known", type);
    else if (value != NULL)
        snprintf(found, sizeof found, "must be a text, not %s",
                 mics_json_type_text(mics_json_type_of(value)));
    return mics_json_fail(config, "model_type", MICS_ERR_UNSUPPORTED,
                          "%s; this version builds %s%s%s", found, names + 2,
                          needs_text(config, needs, sizeof needs),
                          type != NULL ? "; mics plan takes other models by their shapes" : "");
}

// Weights of a few bits, which no family reads.
static mics_status refuse_quantised(const mics_json *config)
{
    static const char key[] = "quantization_config";
    if (mics_json_type_of(mics_json_at(config, key)) == MICS_JSON_NULL)
        return MICS_OK;
    return mics_json_fail(config, key, MICS_ERR_UNSUPPORTED,
                          "quantised weights are not read; take the model's weights in fp32, bf16 "
                          "or fp16, and remove the key");
}

// Keys of every family that give another model than the builders make.
static mics_status refuse_others(const mics_json *config)
{
    static const char causal[] = "is_causal", layers[] = "per_layer_config";
    const mics_json_value *value = mics_json_at(config, causal);
    if (value != NULL && !mics_json_bool(value))
        return mics_json_fail(config, causal, MICS_ERR_UNSUPPORTED,
                              "only true can be honoured: each token sees those before it");
    if (mics_json_type_of(mics_json_at(config, layers)) != MICS_JSON_NULL)
        return mics_json_fail(config, layers, MICS_ERR_UNSUPPORTED,
                              "cannot be honoured: all layers have one shape");
    return MICS_OK;
}

// What ends a text is looked at when one is written, at the end of a run: too late for an error.
mics_status mics_model_check_ends(const mics_json *config)
{
    static const char key[] = "eos_token_id";
    const mics_json_value *value = mics_json_at(config, key);
    const bool list = mics_json_type_of(value) == MICS_JSON_ARRAY;
    bool good = list || mics_json_type_of(value) == MICS_JSON_NULL ||
                mics_json_type_of(value) == MICS_JSON_INT;
    for (int32_t i = 0; list && good && i < mics_json_count(value); i++)
        good = mics_json_type_of(mics_json_element(value, i)) == MICS_JSON_INT;
    if (good)
        return MICS_OK;
    return mics_json_fail(config, key, MICS_ERR_INVALID,
                          "is neither a token's id nor a list of such");
}

mics_status mics_model_from_config(mics_memory *memory, const mics_json *config,
                                   bool ignore_dropout, mics_model **model_out)
{
    builder build = NULL;
    if (mics_json_type_of(mics_json_root(config)) != MICS_JSON_OBJECT)
        return mics_fail(MICS_ERR_INVALID, "%s: a model configuration must be an object",
                         mics_json_name(config));
    MICS_TRY(find_builder(config, &build));
    MICS_TRY(refuse_quantised(config));
    MICS_TRY(refuse_others(config));
    MICS_TRY(mics_model_check_ends(config));
    mics_model *model = NULL;
    config_reader reader = {.json = config};
    mics_status status = build(memory, &reader, ignore_dropout, &model);
    if (status == MICS_OK)
        status = mics_model_finish(model);
    if (status != MICS_OK) {
        mics_model_close(model);
        return status;
    }
    *model_out = model;
    return MICS_OK;
}

mics_status mics_model_load(mics_memory *memory, const char *path, mics_model **model_out)
{
    mics_json *config = NULL;
    MICS_TRY(mics_json_load(memory, path, MICS_MODEL_CONFIG_MAX_BYTES, &config));
    const mics_status status = mics_model_from_config(memory, config, false, model_out);
    mics_json_close(config);
    return status;
}
