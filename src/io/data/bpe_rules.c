// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json says about the way from text to pieces, and the refusal of everything that
// byte-level BPE does not have.
#include "io/data/bpe.h"
#include <string.h>

// Leaves *value as it is when the member is absent.
static mics_status read_bool(const mics_json *json, const mics_json_value *object, const char *path,
                             const char *key, bool *value)
{
    const mics_json_value *member = mics_json_get(object, key);
    if (member == NULL)
        return MICS_OK;
    if (mics_json_type_of(member) != MICS_JSON_BOOL)
        return mics_json_fail(json, path, MICS_ERR_FORMAT, "\"%s\" is %s, expected true or false",
                              key, mics_json_type_text(mics_json_type_of(member)));
    *value = mics_json_bool(member);
    return MICS_OK;
}

// A member's text; "" when it is absent, null or no string.
static const char *text_of(const mics_json_value *object, const char *key)
{
    const char *text = mics_json_string(mics_json_get(object, key));
    return text != NULL ? text : "";
}

static bool is_null(const mics_json_value *value)
{
    return mics_json_type_of(value) == MICS_JSON_NULL;
}

// ---- pre-tokenizers ----

static const char pre_path[] = "pre_tokenizer";

static mics_status load_byte_level(const mics_json *json, const mics_json_value *step,
                                   bool has_splits, mics_bpe *bpe)
{
    bool prefix = true, regex = true;
    MICS_TRY(read_bool(json, step, pre_path, "add_prefix_space", &prefix));
    MICS_TRY(read_bool(json, step, pre_path, "use_regex", &regex));
    if (prefix && has_splits)
        return mics_json_fail(json, pre_path, MICS_ERR_UNSUPPORTED,
                              "ByteLevel with add_prefix_space behind other pre-tokenizers is not "
                              "supported");
    bpe->add_prefix_space = prefix;
    return regex ? mics_split_add(bpe->split, mics_json_name(json), MICS_SPLIT_GPT2) : MICS_OK;
}

static mics_status load_split(const mics_json *json, const mics_json_value *step, mics_bpe *bpe)
{
    const char *behavior = text_of(step, "behavior");
    if (strcmp(behavior, "Isolated") != 0)
        return mics_json_fail(json, pre_path, MICS_ERR_UNSUPPORTED,
                              "Split with behavior \"%s\" is not supported, only \"Isolated\"",
                              behavior);
    const char *regex = mics_json_string(mics_json_get(mics_json_get(step, "pattern"), "Regex"));
    if (regex == NULL)
        return mics_json_fail(json, pre_path, MICS_ERR_UNSUPPORTED,
                              "Split by something other than a \"Regex\" is not supported");
    return mics_split_add(bpe->split, mics_json_name(json), regex);
}

static mics_status load_digits(const mics_json *json, const mics_json_value *step, mics_bpe *bpe)
{
    bool individual = false;
    MICS_TRY(read_bool(json, step, pre_path, "individual_digits", &individual));
    return mics_split_add(bpe->split, mics_json_name(json), individual ? "\\p{N}" : "\\p{N}+");
}

// One pre-tokenizer of a list; ByteLevel must be the last, and nothing else may be.
static mics_status load_step(const mics_json *json, const mics_json_value *step, bool first,
                             bool last, mics_bpe *bpe)
{
    const char *type = text_of(step, "type");
    bool byte_level = strcmp(type, "ByteLevel") == 0;
    if (byte_level != last)
        return mics_json_fail(json, pre_path, MICS_ERR_UNSUPPORTED,
                              "%s \"%s\" is not supported: byte-level BPE has ByteLevel last, and "
                              "once",
                              last ? "the last pre-tokenizer" : "a pre-tokenizer before the last",
                              type);
    if (byte_level)
        return load_byte_level(json, step, !first, bpe);
    if (strcmp(type, "Split") == 0)
        return load_split(json, step, bpe);
    if (strcmp(type, "Digits") == 0)
        return load_digits(json, step, bpe);
    return mics_json_fail(json, pre_path, MICS_ERR_UNSUPPORTED,
                          "pre-tokenizer \"%s\" is not supported; known: ByteLevel, Split, Digits",
                          type);
}

static mics_status load_pre_tokenizer(const mics_json *json, mics_bpe *bpe)
{
    const mics_json_value *top = mics_json_get(mics_json_root(json), "pre_tokenizer");
    if (strcmp(text_of(top, "type"), "Sequence") != 0)
        return load_step(json, top, true, true, bpe);
    const mics_json_value *steps = mics_json_get(top, "pretokenizers");
    int32_t count = mics_json_count(steps);
    if (count == 0)
        return mics_json_fail(json, pre_path, MICS_ERR_UNSUPPORTED,
                              "an empty Sequence is not byte-level");
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(load_step(json, mics_json_element(steps, i), i == 0, i == count - 1, bpe));
    return MICS_OK;
}

// ---- the rest ----

// Refuses a member that has a value other than null or "".
static mics_status refuse(const mics_json *json, const mics_json_value *object, const char *path,
                          const char *key, const char *why)
{
    const mics_json_value *member = mics_json_get(object, key);
    const char *text = mics_json_string(member);
    if (is_null(member) || (text != NULL && *text == '\0'))
        return MICS_OK;
    const char *type = text != NULL ? text : text_of(member, "type");
    return mics_json_fail(json, path, MICS_ERR_UNSUPPORTED, "%s %s%s%s", why,
                          *type != '\0' ? "\"" : "", *type != '\0' ? type : "(set)",
                          *type != '\0' ? "\" is not supported" : " is not supported");
}

mics_status mics_bpe_load_rules(const mics_json *json, mics_bpe *bpe)
{
    const mics_json_value *root = mics_json_root(json), *model = mics_json_get(root, "model");
    if (mics_json_type_of(model) != MICS_JSON_OBJECT)
        return mics_json_fail(json, "model", MICS_ERR_FORMAT,
                              "missing or no object: this is no tokenizer.json");
    // Files of GPT-2's time have no type; a BPE model is known by its merges.
    const char *type = text_of(model, "type");
    bool untyped = *type == '\0' && mics_json_get(model, "merges") != NULL;
    if (!untyped && strcmp(type, "BPE") != 0)
        return mics_json_fail(json, "model.type", MICS_ERR_UNSUPPORTED,
                              "a model of type \"%s\" is not supported, only \"BPE\"", type);
    MICS_TRY(refuse(json, root, "normalizer", "normalizer", "a normalizer"));
    MICS_TRY(refuse(json, model, "model.continuing_subword_prefix", "continuing_subword_prefix",
                    "a prefix of subwords"));
    MICS_TRY(
        refuse(json, model, "model.end_of_word_suffix", "end_of_word_suffix", "a suffix of words"));
    if (mics_json_real(mics_json_get(model, "dropout")) != 0.0)
        return mics_json_fail(json, "model.dropout", MICS_ERR_UNSUPPORTED,
                              "dropout of merges is not supported");
    const mics_json_value *decoder = mics_json_get(root, "decoder");
    if (!is_null(decoder) && strcmp(text_of(decoder, "type"), "ByteLevel") != 0)
        return mics_json_fail(json, "decoder", MICS_ERR_UNSUPPORTED,
                              "decoder \"%s\" is not supported, only ByteLevel",
                              text_of(decoder, "type"));
    MICS_TRY(read_bool(json, model, "model", "ignore_merges", &bpe->ignore_merges));
    return load_pre_tokenizer(json, bpe);
}
