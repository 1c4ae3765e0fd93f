// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a tokenizer.json says about the way from text to pieces, and the refusal of everything that
// is not known here.
#include "io/data/tokenizer/bpe.h"
#include "io/data/tokenizer/bpe_read.h"
#include "io/data/tokenizer/split_known.h"
#include <string.h>

// What the steps of a list are read with.
typedef struct reader {
    const mics_json *json;
    mics_bpe *bpe;
} reader;

// ---- the model ----

static const char model_path[] = "model";

// Refuses a member that has a value other than null or "".
static mics_status refuse(const mics_json *json, const mics_json_value *object, const char *path,
                          const char *key, const char *why)
{
    const char *text = NULL;
    MICS_TRY(mics_read_text(json, object, path, key, false, &text));
    if (text == NULL || *text == '\0')
        return MICS_OK;
    return mics_json_fail(json, path, MICS_ERR_UNSUPPORTED, "%s, \"%.60s\", is not supported", why,
                          text);
}

static mics_status load_wordpiece(const mics_json *json, const mics_json_value *model,
                                  mics_bpe *bpe)
{
    static const char key[] = "max_input_chars_per_word", prefix[] = "continuing_subword_prefix";
    enum { USUAL_CHARS = 100, MAX_CHARS = 10000 };
    const mics_json_value *chars = mics_json_get(model, key);
    const char *text = "##";
    if (mics_json_get(model, prefix) != NULL)
        MICS_TRY(
            mics_read_text(json, model, "model.continuing_subword_prefix", prefix, true, &text));
    bpe->wordpiece.max_chars = chars != NULL ? mics_json_int(chars) : USUAL_CHARS;
    if (chars != NULL && (mics_json_type_of(chars) != MICS_JSON_INT || mics_json_int(chars) < 1 ||
                          mics_json_int(chars) > MAX_CHARS))
        return mics_json_fail(json, "model.max_input_chars_per_word", MICS_ERR_FORMAT,
                              "is no integer from 1 to %d", MAX_CHARS);
    return mics_strdup(bpe->memory, text, &bpe->wordpiece.prefix);
}

mics_status mics_bpe_load_model(const mics_json *json, mics_bpe *bpe)
{
    const mics_json_value *model = mics_json_get(mics_json_root(json), model_path);
    if (mics_json_type_of(model) != MICS_JSON_OBJECT)
        return mics_json_fail(json, model_path, MICS_ERR_FORMAT,
                              "missing or no object: this is no tokenizer.json");
    // Files of GPT-2's time have no type; a BPE model is known by its merges.
    const char *type = NULL;
    MICS_TRY(mics_read_text(json, model, model_path, "type", mics_json_get(model, "merges") == NULL,
                            &type));
    if (type != NULL && strcmp(type, "WordPiece") == 0)
        return load_wordpiece(json, model, bpe);
    if (type != NULL && strcmp(type, "BPE") != 0)
        return mics_json_fail(json, "model.type", MICS_ERR_UNSUPPORTED,
                              "a model of type \"%.60s\" is not supported; known: BPE, WordPiece",
                              type);
    MICS_TRY(refuse(json, model, "model.continuing_subword_prefix", "continuing_subword_prefix",
                    "a prefix of subwords"));
    MICS_TRY(
        refuse(json, model, "model.end_of_word_suffix", "end_of_word_suffix", "a suffix of words"));
    const mics_json_value *dropout = mics_json_get(model, "dropout");
    if (mics_json_type_of(dropout) != MICS_JSON_NULL && mics_json_real(dropout) == 0.0 &&
        !mics_json_is_number(dropout))
        return mics_json_fail(json, "model.dropout", MICS_ERR_FORMAT, "is %s, expected a number",
                              mics_json_type_text(mics_json_type_of(dropout)));
    if (mics_json_real(dropout) != 0.0)
        return mics_json_fail(json, "model.dropout", MICS_ERR_UNSUPPORTED,
                              "dropout of merges is not supported");
    MICS_TRY(mics_read_bool(json, model, model_path, "fuse_unk", &bpe->fuse_unknown));
    MICS_TRY(mics_read_bool(json, model, model_path, "byte_fallback", &bpe->has_bytes));
    return mics_read_bool(json, model, model_path, "ignore_merges", &bpe->ignore_merges);
}

// ---- normalizers ----

static const char normalizer_path[] = "normalizer";

static mics_status add_replace(const reader *r, const mics_json_value *object)
{
    const char *text = NULL, *content = NULL;
    bool regex = false;
    MICS_TRY(mics_read_pattern(r->json, object, normalizer_path, &text, &regex));
    MICS_TRY(mics_read_text(r->json, object, normalizer_path, "content", true, &content));
    regex = regex || *text == '\0'; // the empty text is found as the empty pattern is
    MICS_TRY(mics_normal_add(r->bpe->normal, mics_json_name(r->json),
                             regex ? MICS_NORMAL_REPLACE_PATTERN : MICS_NORMAL_REPLACE_TEXT, text,
                             content));
    if (mics_normal_finds_nothing(r->bpe->normal))
        return mics_json_fail(r->json, normalizer_path, MICS_ERR_UNSUPPORTED,
                              "a Replace whose pattern \"%.60s\" matches the empty text is not "
                              "supported; one that takes a character would work",
                              text);
    return MICS_OK;
}

static mics_status add_strip(const reader *r, const mics_json_value *object)
{
    const char *where = mics_json_name(r->json);
    bool left = true, right = true;
    MICS_TRY(mics_read_bool(r->json, object, normalizer_path, "strip_left", &left));
    MICS_TRY(mics_read_bool(r->json, object, normalizer_path, "strip_right", &right));
    if (left)
        MICS_TRY(mics_normal_add(r->bpe->normal, where, MICS_NORMAL_STRIP_LEFT, NULL, NULL));
    return right ? mics_normal_add(r->bpe->normal, where, MICS_NORMAL_STRIP_RIGHT, NULL, NULL)
                 : MICS_OK;
}

// Source: Hugging Face tokenizers, normalizers/bert.rs: its four parts in this order.
static mics_status add_bert(const reader *r, const mics_json_value *object)
{
    static const char accents[] = "strip_accents";
    const char *where = mics_json_name(r->json);
    mics_normal *normal = r->bpe->normal;
    bool clean = true, han = true, lowercase = true;
    MICS_TRY(mics_read_bool(r->json, object, normalizer_path, "clean_text", &clean));
    MICS_TRY(mics_read_bool(r->json, object, normalizer_path, "handle_chinese_chars", &han));
    MICS_TRY(mics_read_bool(r->json, object, normalizer_path, "lowercase", &lowercase));
    bool strip = lowercase; // where it is null or absent
    if (mics_json_type_of(mics_json_get(object, accents)) != MICS_JSON_NULL)
        MICS_TRY(mics_read_bool(r->json, object, normalizer_path, accents, &strip));
    if (clean)
        MICS_TRY(mics_normal_add(normal, where, MICS_NORMAL_CLEAN, NULL, NULL));
    if (han)
        MICS_TRY(mics_normal_add(normal, where, MICS_NORMAL_SPACE_HAN, NULL, NULL));
    if (strip) {
        MICS_TRY(mics_normal_add(normal, where, MICS_NORMAL_NFD, NULL, NULL));
        MICS_TRY(mics_normal_add(normal, where, MICS_NORMAL_STRIP_NONSPACING, NULL, NULL));
    }
    return lowercase ? mics_normal_add(normal, where, MICS_NORMAL_LOWERCASE, NULL, NULL) : MICS_OK;
}

static mics_status add_normalizer(void *ctx, const mics_json_value *object, const char *type)
{
    static const struct {
        const char *type;
        mics_normal_kind kind;
    } plain[] = {
        {"NFC", MICS_NORMAL_NFC},
        {"NFD", MICS_NORMAL_NFD},
        {"NFKC", MICS_NORMAL_NFKC},
        {"NFKD", MICS_NORMAL_NFKD},
        {"Lowercase", MICS_NORMAL_LOWERCASE},
        {"StripAccents", MICS_NORMAL_STRIP_ACCENTS},
    };
    const reader *r = ctx;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (strcmp(type, plain[i].type) == 0)
            return mics_normal_add(r->bpe->normal, mics_json_name(r->json), plain[i].kind, NULL,
                                   NULL);
    }
    if (strcmp(type, "Replace") == 0)
        return add_replace(r, object);
    if (strcmp(type, "Strip") == 0)
        return add_strip(r, object);
    if (strcmp(type, "BertNormalizer") == 0)
        return add_bert(r, object);
    if (strcmp(type, "Prepend") == 0) {
        const char *content = NULL;
        MICS_TRY(mics_read_text(r->json, object, normalizer_path, "prepend", true, &content));
        if (*content == '\0')
            return mics_json_fail(
                r->json, normalizer_path, MICS_ERR_UNSUPPORTED,
                "a Prepend of nothing, which Hugging Face's library takes for the "
                "first character once more, is not supported; leave it out");
        return mics_normal_add(r->bpe->normal, mics_json_name(r->json), MICS_NORMAL_PREPEND, NULL,
                               content);
    }
    return mics_json_fail(r->json, normalizer_path, MICS_ERR_UNSUPPORTED,
                          "a normalizer \"%.60s\" is not supported; known: BertNormalizer, "
                          "Lowercase, NFC, NFD, NFKC, NFKD, Prepend, Replace, Sequence, Strip, "
                          "StripAccents",
                          type);
}

mics_status mics_bpe_load_normalizer(const mics_json *json, mics_bpe *bpe)
{
    reader r = {.json = json, .bpe = bpe};
    return mics_read_sequence(json, normalizer_path, "normalizers", add_normalizer, &r);
}

// ---- pre-tokenizers ----

static const char pre_path[] = "pre_tokenizer";

static mics_status read_behavior(const reader *r, const mics_json_value *object, bool wanted,
                                 mics_split_behavior *behavior_out)
{
    static const char *const names[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                        "MergedWithNext"};
    const char *name = NULL;
    *behavior_out = MICS_SPLIT_ISOLATED;
    MICS_TRY(mics_read_text(r->json, object, pre_path, "behavior", wanted, &name));
    for (int i = 0; name != NULL && i < (int)(sizeof names / sizeof *names); i++) {
        if (strcmp(name, names[i]) == 0) {
            *behavior_out = (mics_split_behavior)i;
            return MICS_OK;
        }
    }
    if (name == NULL)
        return MICS_OK;
    return mics_json_fail(r->json, pre_path, MICS_ERR_UNSUPPORTED,
                          "\"behavior\" is \"%.60s\"; known: Isolated, Removed, Contiguous, "
                          "MergedWithPrevious, MergedWithNext",
                          name);
}

static mics_status add_byte_level(const reader *r, const mics_json_value *object)
{
    const char *where = mics_json_name(r->json);
    bool prefix = true, regex = true;
    if (r->bpe->wordpiece.prefix != NULL)
        return mics_json_fail(r->json, pre_path, MICS_ERR_UNSUPPORTED,
                              "ByteLevel before a model of type \"WordPiece\" is not supported; "
                              "BertPreTokenizer would work");
    MICS_TRY(mics_read_bool(r->json, object, pre_path, "add_prefix_space", &prefix));
    MICS_TRY(mics_read_bool(r->json, object, pre_path, "use_regex", &regex));
    r->bpe->byte_level = true;
    if (prefix)
        MICS_TRY(mics_split_add_space(r->bpe->split, where, " ", MICS_SPLIT_PREPEND_ALWAYS));
    return regex ? mics_split_add_pattern(r->bpe->split, where, MICS_SPLIT_GPT2,
                                          MICS_SPLIT_ISOLATED, false)
                 : MICS_OK;
}

static mics_status add_split(const reader *r, const mics_json_value *object)
{
    const char *text = NULL, *where = mics_json_name(r->json);
    bool regex = false, invert = false;
    mics_split_behavior behavior = MICS_SPLIT_ISOLATED;
    MICS_TRY(mics_read_pattern(r->json, object, pre_path, &text, &regex));
    MICS_TRY(read_behavior(r, object, true, &behavior));
    MICS_TRY(mics_read_bool(r->json, object, pre_path, "invert", &invert));
    if (regex || *text == '\0') // the empty text is found as the empty pattern is
        return mics_split_add_pattern(r->bpe->split, where, text, behavior, invert);
    return mics_split_add_text(r->bpe->split, where, text, behavior, invert);
}

static mics_status add_metaspace(const reader *r, const mics_json_value *object)
{
    const char *text = NULL, *where = mics_json_name(r->json);
    mics_split_prepend prepend = MICS_SPLIT_PREPEND_ALWAYS;
    bool split = true;
    MICS_TRY(mics_read_char(r->json, object, pre_path, "replacement", &text));
    MICS_TRY(mics_read_prepend(r->json, object, pre_path, &prepend));
    MICS_TRY(mics_read_bool(r->json, object, pre_path, "split", &split));
    if (prepend == MICS_SPLIT_PREPEND_FIRST && mics_normal_drops_head(r->bpe->normal))
        return mics_json_fail(
            r->json, pre_path, MICS_ERR_UNSUPPORTED,
            "Metaspace with \"prepend_scheme\": \"first\" is not supported behind "
            "a normalizer that may take away what a text begins with (Strip, "
            "StripAccents, a Replace by nothing)");
    MICS_TRY(mics_split_add_space(r->bpe->split, where, text, prepend));
    return split
               ? mics_split_add_text(r->bpe->split, where, text, MICS_SPLIT_MERGED_WITH_NEXT, false)
               : MICS_OK;
}

static mics_status add_chars(const reader *r, const mics_json_value *object, const char *type)
{
    const char *where = mics_json_name(r->json);
    mics_split_behavior behavior = MICS_SPLIT_REMOVED;
    uint8_t classes = MICS_CHAR_SPACE;
    if (strcmp(type, "Digits") == 0) {
        bool individual = false;
        MICS_TRY(mics_read_bool(r->json, object, pre_path, "individual_digits", &individual));
        behavior = individual ? MICS_SPLIT_ISOLATED : MICS_SPLIT_CONTIGUOUS;
        classes = MICS_CHAR_NUMBER;
    } else if (strcmp(type, "Punctuation") == 0) {
        MICS_TRY(read_behavior(r, object, false, &behavior));
        classes = MICS_CHAR_PUNCTUATION;
    }
    return mics_split_add_chars(r->bpe->split, where, classes, behavior);
}

// White space is left out, and each punctuation mark is a word.
static mics_status add_bert_words(const reader *r)
{
    const char *where = mics_json_name(r->json);
    MICS_TRY(mics_split_add_chars(r->bpe->split, where, MICS_CHAR_SPACE, MICS_SPLIT_REMOVED));
    return mics_split_add_chars(r->bpe->split, where, MICS_CHAR_PUNCTUATION, MICS_SPLIT_ISOLATED);
}

static mics_status add_pre_tokenizer(void *ctx, const mics_json_value *object, const char *type)
{
    const reader *r = ctx;
    if (r->bpe->byte_level)
        return mics_json_fail(r->json, pre_path, MICS_ERR_UNSUPPORTED,
                              "\"%.60s\" behind ByteLevel is not supported: ByteLevel must be the "
                              "last",
                              type);
    if (strcmp(type, "ByteLevel") == 0)
        return add_byte_level(r, object);
    if (strcmp(type, "Split") == 0)
        return add_split(r, object);
    if (strcmp(type, "Metaspace") == 0)
        return add_metaspace(r, object);
    if (strcmp(type, "BertPreTokenizer") == 0)
        return add_bert_words(r);
    if (strcmp(type, "Whitespace") == 0)
        return mics_split_add_words(r->bpe->split, mics_json_name(r->json));
    if (strcmp(type, "Digits") == 0 || strcmp(type, "Punctuation") == 0 ||
        strcmp(type, "WhitespaceSplit") == 0)
        return add_chars(r, object, type);
    return mics_json_fail(
        r->json, pre_path, MICS_ERR_UNSUPPORTED,
        "pre-tokenizer \"%.60s\" is not supported; known: BertPreTokenizer, "
        "ByteLevel, Digits, Metaspace, Punctuation, Sequence, Split, Whitespace, WhitespaceSplit",
        type);
}

mics_status mics_bpe_load_pre_tokenizer(const mics_json *json, mics_bpe *bpe)
{
    reader r = {.json = json, .bpe = bpe};
    return mics_read_sequence(json, pre_path, "pretokenizers", add_pre_tokenizer, &r);
}
