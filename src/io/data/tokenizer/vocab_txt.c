// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writes the tokenizer.json, so that there is one reader of tokenizers, and exports have one.
// Source: transformers 5.24, models/bert/tokenization_bert.py, and tokenization_utils_base.py, where
// special_tokens_map.json counts; tokenizers 0.23, WordPiece::read_file.
#include "io/data/tokenizer/vocab_txt.h"
#include "base/file.h"
#include "base/text.h"
#include "base/utf8.h"
#include "mics/log.h"
#include <string.h>

static const char file_name[] = "vocab.txt", settings_name[] = "tokenizer_config.json",
                  specials_name[] = "special_tokens_map.json";
enum { MAX_SETTINGS_BYTES = 1 << 24 };

// Special tokens: the key that names each, and its usual text.
enum { PAD, UNK, CLS, SEP, MASK, SPECIALS };
static const char *const special_keys[SPECIALS] = {"pad_token", "unk_token", "cls_token",
                                                   "sep_token", "mask_token"};
static const char *const usual[SPECIALS] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};

typedef struct vocab {
    const char *name;
    mics_vocab_txt_beside beside;
    const char *special[SPECIALS];
    int32_t id[SPECIALS]; // -1: not found yet
    mics_text json;
} vocab;

bool mics_vocab_txt_is(const char *path)
{
    const char *slash = strrchr(path, '/');
    return strcmp(slash != NULL ? slash + 1 : path, file_name) == 0;
}

// ---- settings ----

// NULL: absent or null.
static const mics_json_value *setting(const mics_json *of, const char *key)
{
    const mics_json_value *value = of != NULL ? mics_json_at(of, key) : NULL;
    return mics_json_type_of(value) != MICS_JSON_NULL ? value : NULL;
}

// "true", "false", or `fallback` where the key is absent or null.
static mics_status read_switch(const vocab *self, const char *key, const char *fallback,
                               const char **text_out)
{
    const mics_json *settings = self->beside.settings;
    const mics_json_value *value = setting(settings, key);
    *text_out = fallback;
    if (value == NULL)
        return MICS_OK;
    if (mics_json_type_of(value) != MICS_JSON_BOOL)
        return mics_json_fail(settings, key, MICS_ERR_INVALID, "must be true or false");
    *text_out = mics_json_bool(value) ? "true" : "false";
    return MICS_OK;
}

// A text, or an object that has it as "content".
static mics_status read_special(vocab *self, int index)
{
    const char *key = special_keys[index];
    const bool mapped = setting(self->beside.specials, key) != NULL;
    const mics_json *of = mapped ? self->beside.specials : self->beside.settings;
    const mics_json_value *value = setting(of, key);
    self->special[index] = usual[index];
    self->id[index] = -1;
    if (value == NULL)
        return MICS_OK;
    if (mics_json_type_of(value) == MICS_JSON_OBJECT)
        value = mics_json_get(value, "content");
    self->special[index] = mics_json_string(value);
    if (self->special[index] == NULL || self->special[index][0] == '\0')
        return mics_json_fail(of, key, MICS_ERR_INVALID,
                              "must be a token's text, or an object with it as \"content\"");
    return MICS_OK;
}

static mics_status check_object(const mics_json *json)
{
    if (json == NULL || mics_json_type_of(mics_json_root(json)) == MICS_JSON_OBJECT)
        return MICS_OK;
    return mics_fail(MICS_ERR_FORMAT, "%s: must be an object", mics_json_name(json));
}

static mics_status read_settings(vocab *self)
{
    static const char key[] = "tokenizer_class";
    const mics_json *settings = self->beside.settings;
    MICS_TRY(check_object(settings));
    MICS_TRY(check_object(self->beside.specials));
    if (settings != NULL && mics_json_at(settings, "added_tokens_decoder") != NULL)
        self->beside.specials = NULL; // transformers then passes over it
    const mics_json_value *value = setting(settings, key);
    const char *class = mics_json_string(value);
    if (value != NULL && (class == NULL || (strcmp(class, "BertTokenizer") != 0 &&
                                            strcmp(class, "BertTokenizerFast") != 0)))
        return mics_json_fail(settings, key, MICS_ERR_UNSUPPORTED,
                              "a vocab.txt is read for BertTokenizer alone; save the tokenizer "
                              "with transformers, which writes a tokenizer.json");
    for (int i = 0; i < SPECIALS; i++)
        MICS_TRY(read_special(self, i));
    return MICS_OK;
}

// Whether it is a special token's text, or an object that has one as "content".
static bool is_special(const vocab *self, const mics_json_value *token)
{
    const bool object = mics_json_type_of(token) == MICS_JSON_OBJECT;
    const char *text = mics_json_string(object ? mics_json_get(token, "content") : token);
    bool known = false;
    for (int s = 0; s < SPECIALS && text != NULL; s++)
        known = known || strcmp(text, self->special[s]) == 0;
    return known;
}

static mics_status refuse_more(const mics_json *of, const char *key)
{
    return mics_json_fail(of, key, MICS_ERR_UNSUPPORTED,
                          "has more than the special tokens; save the tokenizer with "
                          "transformers, which writes a tokenizer.json");
}

// Tokens beyond the vocabulary's own special ones.
static mics_status check_added(const vocab *self, const mics_json *of)
{
    static const char *const keys[] = {"added_tokens_decoder", "additional_special_tokens",
                                       "extra_special_tokens"};
    for (size_t i = 0; of != NULL && i < sizeof keys / sizeof *keys; i++) {
        const mics_json_value *added = setting(of, keys[i]), *token = NULL;
        const mics_json_type type = mics_json_type_of(added);
        if (type != MICS_JSON_NULL && type != MICS_JSON_OBJECT && type != MICS_JSON_ARRAY)
            return refuse_more(of, keys[i]);
        for (const char *id = NULL; (token = mics_json_next(added, &id)) != NULL;) {
            if (!is_special(self, token))
                return refuse_more(of, keys[i]);
        }
        for (int32_t at = 0; type == MICS_JSON_ARRAY && at < mics_json_count(added); at++) {
            if (!is_special(self, mics_json_element(added, at)))
                return refuse_more(of, keys[i]);
        }
    }
    return MICS_OK;
}

// ---- the vocabulary ----

// A token is one line, without what ends it.
static mics_status put_token(vocab *self, const char *token, size_t bytes, int32_t id)
{
    if (memchr(token, '\0', bytes) != NULL || mics_utf8_valid(token, bytes) < bytes)
        return mics_fail(MICS_ERR_FORMAT, "%s:%d: is no text in UTF-8", self->name, (int)id + 1);
    for (int i = 0; i < SPECIALS; i++)
        if (self->id[i] < 0 && strcmp(token, self->special[i]) == 0)
            self->id[i] = id;
    mics_text_printf(&self->json, id > 0 ? ",\n" : "");
    mics_text_quoted(&self->json, token);
    mics_text_printf(&self->json, ": %d", (int)id);
    return MICS_OK;
}

static mics_status put_vocab(vocab *self, char *text, size_t bytes)
{
    int32_t id = 0;
    for (size_t at = 0; at < bytes; id++) {
        char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t length = end != NULL ? (size_t)(end - line) : bytes - at;
        at += length + (end != NULL);
        if (end != NULL && length > 0 && line[length - 1] == '\r')
            length--;
        line[length] = '\0';
        if (id == INT32_MAX)
            return mics_fail(MICS_ERR_FORMAT, "%s: has too many lines", self->name);
        MICS_TRY(put_token(self, line, length, id));
    }
    for (int i = 0; i < SPECIALS; i++)
        if (self->id[i] < 0)
            return mics_fail(MICS_ERR_FORMAT,
                             "%s: no line is %s, the %s; name another in tokenizer_config.json",
                             self->name, self->special[i], special_keys[i]);
    return MICS_OK;
}

// ---- the other members ----

static void put_added(vocab *self)
{
    mics_text_printf(&self->json, ", \"added_tokens\": [");
    for (int i = 0, put = 0; i < SPECIALS; i++) {
        bool again = false;
        for (int j = 0; j < i; j++)
            again = again || self->id[j] == self->id[i];
        if (again)
            continue;
        mics_text_printf(&self->json, "%s{\"id\": %d, \"content\": ", put++ > 0 ? ", " : "",
                         (int)self->id[i]);
        mics_text_quoted(&self->json, self->special[i]);
        mics_text_printf(&self->json,
                         ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                         "\"normalized\": false, \"special\": true}");
    }
    mics_text_printf(&self->json, "]");
}

static void put_special(vocab *self, int index, int type, const char *behind)
{
    mics_text_printf(&self->json, "{\"SpecialToken\": {\"id\": ");
    mics_text_quoted(&self->json, self->special[index]);
    mics_text_printf(&self->json, ", \"type_id\": %d}}%s", type, behind);
}

static void put_sequence(vocab *self, const char *id, int type)
{
    mics_text_printf(&self->json, "{\"Sequence\": {\"id\": \"%s\", \"type_id\": %d}}, ", id, type);
}

static void put_ids(vocab *self, int index)
{
    mics_text_quoted(&self->json, self->special[index]);
    mics_text_printf(&self->json, ": {\"id\": ");
    mics_text_quoted(&self->json, self->special[index]);
    mics_text_printf(&self->json, ", \"ids\": [%d], \"tokens\": [", (int)self->id[index]);
    mics_text_quoted(&self->json, self->special[index]);
    mics_text_printf(&self->json, "]}");
}

static void put_frame(vocab *self)
{
    mics_text_printf(&self->json, ", \"post_processor\": {\"type\": \"TemplateProcessing\", "
                                  "\"single\": [");
    put_special(self, CLS, 0, ", ");
    put_sequence(self, "A", 0);
    put_special(self, SEP, 0, "], \"pair\": [");
    put_special(self, CLS, 0, ", ");
    put_sequence(self, "A", 0);
    put_special(self, SEP, 0, ", ");
    put_sequence(self, "B", 1);
    put_special(self, SEP, 1, "], \"special_tokens\": {");
    put_ids(self, CLS);
    if (self->id[SEP] != self->id[CLS]) {
        mics_text_printf(&self->json, ", ");
        put_ids(self, SEP);
    }
    mics_text_printf(&self->json, "}}");
}

static mics_status put_rules(vocab *self)
{
    const char *lower = NULL, *chinese = NULL, *accents = NULL;
    MICS_TRY(read_switch(self, "do_lower_case", "true", &lower));
    MICS_TRY(read_switch(self, "tokenize_chinese_chars", "true", &chinese));
    MICS_TRY(read_switch(self, "strip_accents", "null", &accents));
    mics_text_printf(&self->json,
                     ", \"normalizer\": {\"type\": \"BertNormalizer\", \"clean_text\": true, "
                     "\"handle_chinese_chars\": %s, \"strip_accents\": %s, \"lowercase\": %s}, "
                     "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"}, \"decoder\": {\"type\": "
                     "\"WordPiece\", \"prefix\": \"##\", \"cleanup\": true}",
                     chinese, accents, lower);
    return MICS_OK;
}

mics_status mics_vocab_txt_parse(mics_memory *memory, const char *name, char *text, size_t bytes,
                                 const mics_vocab_txt_beside *beside, mics_json **json_out)
{
    vocab self = {.name = name, .beside = *beside, .json = {.memory = memory}};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(read_settings(&self));
    MICS_TRY_OUT(check_added(&self, self.beside.settings));
    MICS_TRY_OUT(check_added(&self, self.beside.specials));
    mics_text_printf(&self.json, "{\"version\": \"1.0\", \"truncation\": null, \"padding\": null, "
                                 "\"model\": {\"type\": \"WordPiece\", \"unk_token\": ");
    mics_text_quoted(&self.json, self.special[UNK]);
    mics_text_printf(&self.json, ", \"continuing_subword_prefix\": \"##\", "
                                 "\"max_input_chars_per_word\": 100, \"vocab\": {");
    MICS_TRY_OUT(put_vocab(&self, text, bytes));
    mics_text_printf(&self.json, "}}");
    MICS_TRY_OUT(put_rules(&self));
    put_added(&self);
    put_frame(&self);
    mics_text_printf(&self.json, "}\n");
    MICS_TRY_OUT(mics_text_status(&self.json));
    status = mics_json_parse(memory, name, self.json.bytes, self.json.used, json_out);
out:
    mics_text_fini(&self.json);
    return status;
}

// A file beside vocab.txt; NULL where there is none.
static mics_status load_beside(mics_memory *memory, const char *path, const char *name,
                               mics_json **json_out)
{
    const size_t folder = strlen(path) - strlen(file_name);
    mics_text beside = {.memory = memory};
    mics_text_printf(&beside, "%.*s%s", (int)folder, path, name);
    mics_status status = mics_text_status(&beside);
    if (status == MICS_OK && mics_file_is_there(beside.bytes))
        status = mics_json_load(memory, beside.bytes, MAX_SETTINGS_BYTES, json_out);
    mics_text_fini(&beside);
    return status;
}

static mics_status refuse_added(mics_memory *memory, const char *path)
{
    mics_json *added = NULL;
    mics_status status = load_beside(memory, path, "added_tokens.json", &added);
    if (status == MICS_OK && added != NULL && mics_json_count(mics_json_root(added)) > 0)
        status = mics_fail(MICS_ERR_UNSUPPORTED,
                           "%s: adds tokens to those of vocab.txt; save the tokenizer with "
                           "transformers, which writes a tokenizer.json",
                           mics_json_name(added));
    mics_json_close(added);
    return status;
}

mics_status mics_vocab_txt_load(mics_memory *memory, const char *path, size_t max_bytes,
                                mics_json **json_out)
{
    mics_json *settings = NULL, *specials = NULL;
    char *text = NULL;
    size_t bytes = 0;
    mics_status status = MICS_OK;
    MICS_TRY_OUT(refuse_added(memory, path));
    MICS_TRY_OUT(load_beside(memory, path, settings_name, &settings));
    MICS_TRY_OUT(load_beside(memory, path, specials_name, &specials));
    const mics_vocab_txt_beside beside = {settings, specials};
    MICS_TRY_OUT(mics_file_read_whole(memory, path, max_bytes, &text, &bytes));
    MICS_TRY_OUT(mics_vocab_txt_parse(memory, path, text, bytes, &beside, json_out));
out:
    mics_free(memory, text);
    mics_json_close(specials);
    mics_json_close(settings);
    return status;
}
