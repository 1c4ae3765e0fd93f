// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is known of the software behind published throughputs.
#include "sources.h"
#include "mics/log.h"
#include "model/from_config.h"
#include <string.h>

enum { MAX_LINE = 4096, MAX_MODEL = 512, MAX_PATH_BYTES = 1024 };

mics_status sources_open(mics_memory *memory, const char *path, source_rules *rules_out)
{
    char line[MAX_LINE];
    mics_status status = MICS_OK;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return mics_fail(MICS_ERR_IO, "%s cannot be read", path);
    while (status == MICS_OK && fgets(line, sizeof line, file) != NULL) {
        if (rules_out->count == MAX_RULES)
            status = mics_fail(MICS_ERR_INVALID, "%s has more than %d rules", path, MAX_RULES);
        else
            status = mics_json_parse(memory, "rule", line, strlen(line),
                                     &rules_out->rules[rules_out->count]);
        rules_out->count += status == MICS_OK;
    }
    fclose(file);
    return status;
}

void sources_close(source_rules *rules)
{
    for (int32_t i = 0; i < rules->count; i++)
        mics_json_close(rules->rules[i]);
}

static bool matches(const mics_json_value *rule, const mics_json_value *row)
{
    static const char *const keys[] = {"id", "source", "note"};
    const char *wanted = mics_json_string(mics_json_get(rule, "match"));
    for (int i = 0; wanted != NULL && i < 3; i++) {
        const char *text = mics_json_string(mics_json_get(row, keys[i]));
        if (text != NULL && strstr(text, wanted) != NULL)
            return true;
    }
    return false;
}

mics_status sources_set(const source_rules *rules, const mics_json_value *row, mics_json *cluster)
{
    for (int32_t i = 0; i < rules->count; i++) {
        const mics_json_value *rule = mics_json_root(rules->rules[i]);
        const mics_json_value *sets = mics_json_get(rule, "set"), *value = NULL;
        const char *path = NULL;
        while (matches(rule, row) && (value = mics_json_next(sets, &path)) != NULL) {
            if (mics_json_at(cluster, path) == NULL)
                MICS_TRY(mics_json_set(cluster, path, mics_json_string(value)));
        }
    }
    return MICS_OK;
}

// The first rule that says it.
static const mics_json_value *said(const source_rules *rules, const mics_json_value *row,
                                   const char *key)
{
    for (int32_t i = 0; i < rules->count; i++) {
        const mics_json_value *rule = mics_json_root(rules->rules[i]);
        if (matches(rule, row) && mics_json_get(rule, key) != NULL)
            return mics_json_get(rule, key);
    }
    return NULL;
}

const char *sources_software(const source_rules *rules, const mics_json_value *row)
{
    const mics_json_value *own = mics_json_get(row, "software");
    const char *name = mics_json_string(own != NULL ? own : said(rules, row, "software"));
    return name != NULL ? name : "mics";
}

const mics_json_value *sources_recompute(const source_rules *rules, const mics_json_value *row)
{
    const mics_json_value *own = mics_json_get(row, "recompute");
    return own != NULL ? own : said(rules, row, "recompute");
}

int64_t sources_length(const mics_json_value *row)
{
    const mics_json_value *own = mics_json_get(row, "seq");
    return mics_json_int(own != NULL ? own : mics_json_get(mics_json_get(row, "model"), "seq"));
}

static long long number(const mics_json_value *object, const char *key)
{
    return (long long)mics_json_int(mics_json_get(object, key));
}

static int write_llama(const mics_json_value *shape, char text[MAX_MODEL])
{
    return snprintf(text, MAX_MODEL,
                    "{\"model_type\": \"llama\", \"num_hidden_layers\": %lld, \"hidden_size\": "
                    "%lld, \"num_attention_heads\": %lld, \"intermediate_size\": %lld, "
                    "\"max_position_embeddings\": %lld, \"vocab_size\": %lld, "
                    "\"tie_word_embeddings\": false}",
                    number(shape, "layers"), number(shape, "hidden"), number(shape, "heads"),
                    number(shape, "inner") * 2 / 3, number(shape, "seq"), number(shape, "vocab"));
}

static int write_gpt2(const mics_json_value *shape, char text[MAX_MODEL])
{
    return snprintf(text, MAX_MODEL,
                    "{\"model_type\": \"gpt2\", \"n_layer\": %lld, \"n_embd\": %lld, \"n_head\": "
                    "%lld, \"n_inner\": %lld, \"n_positions\": %lld, \"vocab_size\": %lld}",
                    number(shape, "layers"), number(shape, "hidden"), number(shape, "heads"),
                    number(shape, "inner"), number(shape, "seq"), number(shape, "vocab"));
}

static mics_status shaped_model(const source_rules *rules, mics_memory *memory,
                                const mics_json_value *row, mics_model **model_out)
{
    char text[MAX_MODEL];
    mics_json *json = NULL;
    const mics_json_value *shape = mics_json_get(row, "model");
    const int bytes =
        said(rules, row, "family") != NULL ? write_llama(shape, text) : write_gpt2(shape, text);
    MICS_TRY(mics_json_parse(memory, "model", text, (size_t)bytes, &json));
    const mics_status status = mics_model_from_config(memory, json, true, model_out);
    mics_json_close(json);
    return status;
}

mics_status sources_model(const source_rules *rules, mics_memory *memory, const char *configs,
                          const mics_json_value *row, mics_model **model_out)
{
    const char *name = mics_json_string(mics_json_get(row, "model"));
    char path[MAX_PATH_BYTES];
    mics_json *json = NULL;
    mics_family family;
    if (name == NULL)
        return shaped_model(rules, memory, row, model_out);
    snprintf(path, sizeof path, "%s/%s.json", configs, name);
    MICS_TRY(mics_json_load(memory, path, MICS_MODEL_CONFIG_MAX_BYTES, &json));
    const char *type = mics_json_string(mics_json_at(json, "model_type"));
    const mics_status status = mics_model_family(type, &family)
                                   ? mics_model_from_config(memory, json, true, model_out)
                                   : mics_model_from_shapes(memory, json, model_out);
    mics_json_close(json);
    return status;
}
