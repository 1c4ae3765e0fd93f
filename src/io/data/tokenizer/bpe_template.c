// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The post-processor: what is put around the tokens of one text, by TemplateProcessing, or by
// BERT's and RoBERTa's own.
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/bpe_read.h"
#include <stdio.h>
#include <string.h>

static const char path[] = "post_processor";

typedef struct reader {
    mics_memory *memory;
    const mics_json *json;
    int32_t vocab;
    mics_token_list *list;
    char **refused;
} reader;

static mics_status wrong(const reader *r, const char *what)
{
    return mics_json_fail(r->json, path, MICS_ERR_FORMAT, "%s", what);
}

// The ids of {"SpecialToken": {"id": NAME}}, which stand under "special_tokens".
static mics_status add_special(const reader *r, const mics_json_value *object,
                               const mics_json_value *special)
{
    const char *name = NULL;
    MICS_TRY(mics_read_text(r->json, special, path, "id", true, &name));
    const mics_json_value *token = mics_json_get(mics_json_get(object, "special_tokens"), name);
    const mics_json_value *ids = mics_json_get(token, "ids");
    if (mics_json_type_of(ids) != MICS_JSON_ARRAY)
        return wrong(r, "a token of \"single\" has no \"ids\" under \"special_tokens\"");
    for (int32_t i = 0; i < mics_json_count(ids); i++) {
        const mics_json_value *id = mics_json_element(ids, i);
        if (mics_json_type_of(id) != MICS_JSON_INT || mics_json_int(id) < 0 ||
            mics_json_int(id) >= r->vocab)
            return wrong(r, "\"ids\" has something that is no id of a token");
        const int32_t token_id = (int32_t)mics_json_int(id);
        MICS_TRY(mics_token_list_append(r->list, &token_id, 1));
    }
    return MICS_OK;
}

static mics_status add_template(const reader *r, const mics_json_value *object)
{
    const mics_json_value *single = mics_json_get(object, "single");
    const int32_t text = -1;
    int32_t texts = 0;
    if (mics_json_type_of(single) != MICS_JSON_ARRAY)
        return wrong(r, "TemplateProcessing has no array \"single\"");
    if (r->list->count > 0)
        return wrong(r, "two templates");
    for (int32_t i = 0; i < mics_json_count(single); i++) {
        const mics_json_value *part = mics_json_element(single, i);
        const mics_json_value *special = mics_json_get(part, "SpecialToken");
        if (special != NULL) {
            MICS_TRY(add_special(r, object, special));
        } else if (mics_json_get(part, "Sequence") != NULL && texts++ == 0) {
            MICS_TRY(mics_token_list_append(r->list, &text, 1));
        } else {
            return wrong(r, "a part of \"single\" is neither a SpecialToken nor the one Sequence");
        }
    }
    return texts == 1 ? MICS_OK : wrong(r, "\"single\" has no Sequence");
}

// {"cls": ["[CLS]", 101], "sep": ["[SEP]", 102]}: one before a text, one behind it.
static mics_status add_pair(const reader *r, const mics_json_value *object, const char *key)
{
    const mics_json_value *id = mics_json_element(mics_json_get(object, key), 1);
    if (mics_json_type_of(id) != MICS_JSON_INT || mics_json_int(id) < 0 ||
        mics_json_int(id) >= r->vocab)
        return wrong(r, "\"cls\" or \"sep\" is no text with the id of a token");
    const int32_t token = (int32_t)mics_json_int(id);
    return mics_token_list_append(r->list, &token, 1);
}

static mics_status add_encoder(const reader *r, const mics_json_value *object)
{
    const int32_t text = -1;
    if (r->list->count > 0)
        return wrong(r, "two templates");
    MICS_TRY(add_pair(r, object, "cls"));
    MICS_TRY(mics_token_list_append(r->list, &text, 1));
    return add_pair(r, object, "sep");
}

static mics_status add_processor(void *ctx, const mics_json_value *object, const char *type)
{
    const reader *r = ctx;
    if (strcmp(type, "ByteLevel") == 0) // it changes places in a text, not tokens
        return MICS_OK;
    if (strcmp(type, "TemplateProcessing") == 0)
        return add_template(r, object);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0)
        return add_encoder(r, object);
    char why[320];
    snprintf(
        why, sizeof why,
        "%.120s: post_processor: \"%.60s\" is not supported; known: BertProcessing, ByteLevel, "
        "RobertaProcessing, Sequence, TemplateProcessing",
        mics_json_name(r->json), type);
    mics_free(r->memory, *r->refused);
    *r->refused = NULL;
    return mics_strdup(r->memory, why, r->refused);
}

mics_status mics_bpe_load_template(mics_memory *memory, const mics_json *json, int32_t vocab,
                                   mics_token_list *template_out, char **refused_out)
{
    reader r = {.memory = memory,
                .json = json,
                .vocab = vocab,
                .list = template_out,
                .refused = refused_out};
    return mics_read_sequence(json, path, "processors", add_processor, &r);
}
