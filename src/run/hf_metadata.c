// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// config.json, generation_config.json, tokenizer.json and tokenizer_config.json of an export.
#include "hf_metadata.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "mics/log.h"
#include "model/from_config.h"
#include "run/model_files.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GENERATION "generation_config.json"
#define TOKENIZER_CONFIG "tokenizer_config.json"

enum { BYTE_TOKENS = 256 };

// What is written, but for what comes from the model's folder as it is.
static const char *const ours[] = {"config.json",    GENERATION,       "tokenizer.json",
                                   TOKENIZER_CONFIG, MICS_PEFT_CONFIG, MICS_PEFT_WEIGHTS};
enum { OURS = sizeof ours / sizeof *ours };

// ---- folders ----

static mics_status refuse_where(mics_memory *memory, const char *dir, const char *name,
                                const char *what)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, dir, name, &path));
    const mics_status status =
        mics_file_is_there(path)
            ? mics_fail(MICS_ERR_INVALID, "%s: %s; give another folder", path, what)
            : MICS_OK;
    mics_free(memory, path);
    return status;
}

// ---- JSON values as text ----

static void write_real(mics_text *text, double value)
{
    char digits[32];
    mics_text_real(value, digits, sizeof digits);
    // "10000" would be read as an integer.
    mics_text_printf(text, "%s%s", digits, strpbrk(digits, ".en") != NULL ? "" : ".0");
}

// `of`: the key that it is the value of, or of its list; NULL: none. Values nest no deeper than mics_json_load lets them.
// NOLINTNEXTLINE(misc-no-recursion)
static void write_value(mics_text *text, const char *of, const mics_json_value *value,
                        int32_t depth)
{
    const char *key = NULL;
    const mics_json_value *member;
    switch (mics_json_type_of(value)) {
    case MICS_JSON_NULL:
        mics_text_printf(text, "null");
        break;
    case MICS_JSON_BOOL:
        mics_text_printf(text, mics_json_bool(value) ? "true" : "false");
        break;
    case MICS_JSON_INT:
        mics_text_printf(text, "%lld%s", (long long)mics_json_int(value),
                         run_hf_metadata_is_real(of) ? ".0" : "");
        break;
    case MICS_JSON_REAL:
        write_real(text, mics_json_real(value));
        break;
    case MICS_JSON_STRING:
        mics_text_quoted(text, mics_json_string(value));
        break;
    case MICS_JSON_ARRAY:
        mics_text_printf(text, "[");
        for (int32_t i = 0; i < mics_json_count(value); i++) {
            mics_text_printf(text, i > 0 ? ", " : "");
            write_value(text, of, mics_json_element(value, i), depth + 1);
        }
        mics_text_printf(text, "]");
        break;
    case MICS_JSON_OBJECT:
        mics_text_printf(text, "{");
        for (bool first = true; (member = mics_json_next(value, &key)) != NULL; first = false) {
            mics_text_printf(text, "%s\n%*s", first ? "" : ",", 2 * depth + 2, "");
            mics_text_quoted(text, key);
            mics_text_printf(text, ": ");
            write_value(text, key, member, depth + 1);
        }
        mics_text_printf(text, "\n%*s}", 2 * depth, "");
        break;
    }
}

static mics_status replace(const mics_saved *saved, const char *dir, const char *name,
                           mics_text *text)
{
    mics_status status = mics_text_status(text);
    if (status == MICS_OK)
        status = mics_file_replace(saved->memory, dir, name, text->bytes, text->used);
    mics_text_fini(text);
    return status;
}

// ---- config.json ----

// Readers take the weights' dtype from here.
static const char *dtype_text(mics_dtype dtype)
{
    static const char *const texts[MICS_DTYPES] = {[MICS_DTYPE_FP32] = "float32",
                                                   [MICS_DTYPE_BF16] = "bfloat16",
                                                   [MICS_DTYPE_FP16] = "float16"};
    return texts[dtype];
}

// The class that other programs look for, where the configuration does not name it.
static mics_status name_class(mics_json *config)
{
    mics_family family;
    char classes[MICS_NAME_BYTES];
    const char *type = mics_json_string(mics_json_at(config, "model_type"));
    if (mics_json_type_of(mics_json_at(config, "architectures")) != MICS_JSON_NULL ||
        !mics_model_family(type, &family))
        return MICS_OK;
    snprintf(classes, sizeof classes, "[\"%s\"]", family.class_name);
    return mics_json_set(config, "architectures", classes);
}

// transformers 4 calls the key torch_dtype, 5 dtype, and reads both.
static mics_status write_config(const mics_saved *saved, const char *dir, mics_dtype dtype)
{
    const char *said = saved->meta->model_json;
    mics_json *config = NULL;
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\"", dtype_text(dtype));
    MICS_TRY(mics_json_parse(saved->memory, saved->path, said, strlen(said), &config));
    mics_text text = {.memory = saved->memory};
    mics_status status = mics_json_set(config, "torch_dtype", quoted);
    if (status == MICS_OK && mics_json_at(config, "dtype") != NULL)
        status = mics_json_set(config, "dtype", quoted);
    if (status == MICS_OK)
        status = name_class(config);
    write_value(&text, NULL, mics_json_root(config), 0);
    mics_text_printf(&text, "\n");
    mics_json_close(config);
    if (status != MICS_OK) {
        mics_text_fini(&text);
        return status;
    }
    return replace(saved, dir, "config.json", &text);
}

// ---- generation_config.json ----

static const char *const token_keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// Made anew, where no folder has one.
static mics_status write_generation(const mics_saved *saved, const char *dir)
{
    mics_text text = {.memory = saved->memory};
    mics_text_printf(&text, "{\n  \"_from_model_config\": true");
    for (size_t i = 0; i < sizeof token_keys / sizeof token_keys[0]; i++) {
        const mics_json_value *value = mics_json_at(saved->config, token_keys[i]);
        if (mics_json_type_of(value) == MICS_JSON_NULL)
            continue;
        mics_text_printf(&text, ",\n  \"%s\": ", token_keys[i]);
        write_value(&text, NULL, value, 1);
    }
    mics_text_printf(&text, "\n}\n");
    return replace(saved, dir, GENERATION, &text);
}

// ---- tokenizers ----

// What byte-level vocabularies write for a byte (Radford et al., 2019): itself where it is visible,
// else the next of the code points from 256 on.
static int32_t byte_code_point(int32_t byte)
{
    int32_t hidden = 0;
    for (int32_t b = 0; b <= byte; b++) {
        const bool visible = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
        if (b == byte)
            return visible ? b : BYTE_TOKENS + hidden;
        hidden += visible ? 0 : 1;
    }
    return -1;
}

static void write_code_point(mics_text *text, int32_t point)
{
    char utf8[3] = {(char)point, '\0', '\0'};
    if (point >= 0x80) {
        utf8[0] = (char)(0xc0 | point >> 6);
        utf8[1] = (char)(0x80 | (point & 0x3f));
    }
    mics_text_quoted(text, utf8);
}

mics_status run_hf_metadata_byte_tokenizer(mics_text *text)
{
    mics_text_printf(text,
                     "{\n  \"version\": \"1.0\", \"truncation\": null, \"padding\": null,\n"
                     "  \"added_tokens\": [], \"normalizer\": null,\n"
                     "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                     "\"trim_offsets\": true, \"use_regex\": false},\n"
                     "  \"post_processor\": null,\n"
                     "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, "
                     "\"trim_offsets\": true, \"use_regex\": true},\n"
                     "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
                     "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
                     "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
                     "    \"merges\": [],\n    \"vocab\": {");
    for (int32_t byte = 0; byte < BYTE_TOKENS; byte++) {
        mics_text_printf(text, byte > 0 ? ", " : "");
        write_code_point(text, byte_code_point(byte));
        mics_text_printf(text, ": %d", (int)byte);
    }
    mics_text_printf(text, "}}\n}\n");
    return mics_text_status(text);
}

static mics_status write_byte_tokenizer(const mics_saved *saved, const char *dir)
{
    mics_text text = {.memory = saved->memory};
    (void)run_hf_metadata_byte_tokenizer(&text);
    return replace(saved, dir, "tokenizer.json", &text);
}

// The token of an id, or of the first of several; NULL where the tokenizer has no such one.
static const char *special_token(const mics_json *tokenizer, const mics_json_value *id)
{
    const mics_json_value *added =
        tokenizer != NULL ? mics_json_at(tokenizer, "added_tokens") : NULL;
    if (mics_json_type_of(id) == MICS_JSON_ARRAY)
        id = mics_json_element(id, 0);
    if (mics_json_type_of(id) != MICS_JSON_INT)
        return NULL;
    for (int32_t i = 0; i < mics_json_count(added); i++) {
        const mics_json_value *token = mics_json_element(added, i);
        if (mics_json_int(mics_json_get(token, "id")) == mics_json_int(id))
            return mics_json_string(mics_json_get(token, "content"));
    }
    return NULL;
}

// ---- tokenizer_config.json ----

static bool is_qwen2(const mics_saved *saved)
{
    const char *family = mics_json_string(mics_json_at(saved->config, "model_type"));
    return family != NULL && strcmp(family, "qwen2") == 0;
}

static mics_status put_token(const mics_saved *saved, const char *name, int32_t token,
                             mics_text *text)
{
    char *content = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_tokenizer_decode(saved->tokenizer, &token, 1, &content, &bytes));
    mics_text_printf(text, ", \"%s\": ", name);
    mics_text_quoted(text, content);
    mics_free(saved->memory, content);
    return MICS_OK;
}

// An encoder's: what hides a token, and what stands around a text.
static mics_status put_encoder_tokens(const mics_saved *saved, mics_text *text)
{
    mics_token_frame frame = {0};
    if (!saved->model->masked || saved->tokenizer == NULL)
        return MICS_OK;
    MICS_TRY(mics_tokenizer_frame(saved->tokenizer, &frame));
    if (mics_tokenizer_mask(saved->tokenizer) >= 0)
        MICS_TRY(put_token(saved, "mask_token", mics_tokenizer_mask(saved->tokenizer), text));
    if (frame.before_count > 0)
        MICS_TRY(put_token(saved, "cls_token", frame.before[0], text));
    if (frame.after_count > 0)
        MICS_TRY(put_token(saved, "sep_token", frame.after[frame.after_count - 1], text));
    return MICS_OK;
}

// Made anew, where no folder has one: with the tokens that the model's config names.
static mics_status make_tokenizer_config(const mics_saved *saved, const mics_json *tokenizer,
                                         mics_json **config_out)
{
    static const char *const names[] = {"bos_token", "eos_token", "pad_token"};
    mics_text text = {.memory = saved->memory};
    mics_text_printf(&text,
                     "{\"tokenizer_class\": \"\", \"clean_up_tokenization_spaces\": false, "
                     "\"model_max_length\": %lld",
                     (long long)saved->model->positions);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const mics_json_value *id = mics_json_at(saved->config, token_keys[i]);
        const char *token = special_token(tokenizer, id);
        if (token == NULL)
            continue;
        mics_text_printf(&text, ", \"%s\": ", names[i]);
        mics_text_quoted(&text, token);
    }
    mics_status status = put_encoder_tokens(saved, &text);
    mics_text_printf(&text, "}");
    if (status == MICS_OK)
        status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_json_parse(saved->memory, saved->path, text.bytes, text.used, config_out);
    mics_text_fini(&text);
    return status;
}

// The folder's own; NULL: there is none.
static mics_status load_tokenizer_config(const mics_saved *saved, mics_json **config_out)
{
    char *path = NULL;
    const char *text = run_model_files_find(saved->files, TOKENIZER_CONFIG);
    if (text == NULL)
        return MICS_OK;
    MICS_TRY(mics_file_join(saved->memory, saved->path, TOKENIZER_CONFIG, &path));
    mics_status status = mics_json_parse(saved->memory, path, text, strlen(text), config_out);
    if (status == MICS_OK && mics_json_type_of(mics_json_root(*config_out)) != MICS_JSON_OBJECT)
        status = mics_fail(MICS_ERR_FORMAT, "%s: must be an object; correct it or remove it", path);
    mics_free(saved->memory, path);
    return status;
}

// Without a class transformers takes the one of the model's family, which may cut words elsewhere
// than tokenizer.json says. For qwen2 transformers 5 takes Qwen's class all the same; that calls
// tokens that nothing names "<|endoftext|>", and adds it to a vocabulary that lacks it.
static mics_status set_class(const mics_saved *saved, mics_json *config)
{
    static const char *const tokens[] = {"eos_token", "pad_token", "unk_token"};
    MICS_TRY(mics_json_set(config, "tokenizer_class", "\"PreTrainedTokenizerFast\""));
    if (mics_json_at(config, "auto_map") != NULL) // a class of the folder's own code
        MICS_TRY(mics_json_set(config, "auto_map", "{}"));
    for (size_t i = 0; i < sizeof tokens / sizeof tokens[0] && is_qwen2(saved); i++) {
        if (mics_json_at(config, tokens[i]) == NULL)
            MICS_TRY(mics_json_set(config, tokens[i], "null"));
    }
    return MICS_OK;
}

// The folder's own goes as it is, unless it names a class whose code does not come along.
static mics_status write_tokenizer_config(const mics_saved *saved, const char *dir,
                                          const mics_json *tokenizer)
{
    mics_json *config = NULL;
    mics_text text = {.memory = saved->memory};
    mics_status status = load_tokenizer_config(saved, &config);
    const bool coded = config != NULL && mics_json_at(config, "auto_map") != NULL;
    const bool copied = config != NULL && !coded;
    if (coded)
        mics_log(MICS_LOG_WARNING,
                 "%s/" TOKENIZER_CONFIG ": auto_map names code that is not "
                 "exported, so the class is PreTrainedTokenizerFast",
                 dir);
    if (status == MICS_OK && config == NULL)
        status = make_tokenizer_config(saved, tokenizer, &config);
    if (status == MICS_OK && !copied)
        status = set_class(saved, config);
    if (status == MICS_OK && !copied) {
        write_value(&text, NULL, mics_json_root(config), 0);
        mics_text_printf(&text, "\n");
        status = replace(saved, dir, TOKENIZER_CONFIG, &text);
    }
    mics_json_close(config);
    return status;
}

// ---- what the folder had ----

// What was written of our own stays.
static mics_status write_file(mics_memory *memory, const char *dir, const char *name,
                              const char *text)
{
    char *path = NULL, *folder = NULL;
    MICS_TRY(mics_file_join(memory, dir, name, &path));
    mics_status status = mics_file_join(memory, dir, RUN_MODEL_TEMPLATES, &folder);
    if (status == MICS_OK && strchr(name, '/') != NULL)
        status = mics_file_make_dirs(memory, folder, NULL);
    if (status == MICS_OK && !mics_file_is_there(path))
        status = mics_file_write_whole(path, text, strlen(text));
    mics_free(memory, folder);
    mics_free(memory, path);
    return status;
}

static mics_status write_files(const mics_saved *saved, const char *dir)
{
    const char *name = NULL;
    const mics_json_value *text;
    while ((text = mics_json_next(mics_json_root(saved->files), &name)) != NULL)
        MICS_TRY(write_file(saved->memory, dir, name, mics_json_string(text)));
    return MICS_OK;
}

// ---- what transformers makes of it ----

static bool is_text(const mics_json_value *value, const char *text)
{
    const char *string = mics_json_string(value);
    return string != NULL && strcmp(string, text) == 0;
}

static bool is_false(const mics_json_value *value)
{
    return mics_json_type_of(value) == MICS_JSON_BOOL && !mics_json_bool(value);
}

// Whether the tokenizer cuts texts as transformers' Qwen2Tokenizer does.
// Source: transformers 5.23, models/qwen2/tokenization_qwen2.py.
static bool cuts_as_qwen2(const mics_json *tokenizer)
{
    static const char qwen[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|"
                               " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const mics_json_value *steps = mics_json_at(tokenizer, "pre_tokenizer.pretokenizers");
    const mics_json_value *split = mics_json_element(steps, 0),
                          *bytes = mics_json_element(steps, 1);
    return is_text(mics_json_at(tokenizer, "normalizer.type"), "NFC") &&
           mics_json_count(steps) == 2 && is_text(mics_json_get(split, "type"), "Split") &&
           is_text(mics_json_get(mics_json_get(split, "pattern"), "Regex"), qwen) &&
           is_text(mics_json_get(split, "behavior"), "Isolated") &&
           !mics_json_bool(mics_json_get(split, "invert")) &&
           is_text(mics_json_get(bytes, "type"), "ByteLevel") &&
           is_false(mics_json_get(bytes, "add_prefix_space")) &&
           is_false(mics_json_get(bytes, "use_regex")) &&
           !mics_json_bool(mics_json_at(tokenizer, "model.ignore_merges")) &&
           !mics_json_bool(mics_json_at(tokenizer, "model.byte_fallback")) &&
           is_text(mics_json_at(tokenizer, "decoder.type"), "ByteLevel");
}

// For this family transformers 5 takes its own normalizer and pre-tokenizer, whatever the files
// say. `tokenizer`: NULL: the byte tokenizer.
static void warn_of_qwen2(const mics_saved *saved, const char *dir, const mics_json *tokenizer)
{
    if (!is_qwen2(saved) || (tokenizer != NULL && cuts_as_qwen2(tokenizer)))
        return;
    mics_log(MICS_LOG_WARNING,
             "%s: transformers' AutoTokenizer gives a qwen2 model the tokenizer of Qwen, whose "
             "normalizer, pre-tokenizer or model is not this one's; "
             "PreTrainedTokenizerFast.from_pretrained reads it as it is",
             dir);
}

static mics_status write_tokenizer(const mics_saved *saved, const char *dir)
{
    size_t bytes = 0;
    mics_json *tokenizer = NULL;
    if (saved->tokenizer == NULL)
        return MICS_OK;
    const char *text = mics_tokenizer_text(saved->tokenizer, &bytes);
    if (text == NULL) {
        MICS_TRY(write_byte_tokenizer(saved, dir));
    } else {
        MICS_TRY(mics_file_replace(saved->memory, dir, "tokenizer.json", text, bytes));
        MICS_TRY(mics_json_parse(saved->memory, saved->meta->tokenizer, text, bytes, &tokenizer));
    }
    warn_of_qwen2(saved, dir, tokenizer);
    const mics_status status = write_tokenizer_config(saved, dir, tokenizer);
    mics_json_close(tokenizer);
    return status;
}

// ---- all of it ----

static mics_status refuse_files(const mics_saved *saved, const char *dir)
{
    static const char what[] = "exists, and is not overwritten";
    const char *name = NULL;
    for (int i = 0; i < OURS; i++)
        MICS_TRY(refuse_where(saved->memory, dir, ours[i], what));
    while (mics_json_next(mics_json_root(saved->files), &name) != NULL)
        MICS_TRY(refuse_where(saved->memory, dir, name, what));
    return MICS_OK;
}

mics_status run_hf_metadata_check(const mics_saved *saved, const char *dir)
{
    mics_json *config = NULL;
    static const char *const of_runs[] = {"manifest.json", "checkpoints", "latest", "run-id"};
    for (size_t i = 0; i < sizeof of_runs / sizeof of_runs[0]; i++)
        MICS_TRY(refuse_where(saved->memory, dir, of_runs[i],
                              "is a run's, and no model is exported beside it"));
    MICS_TRY(refuse_files(saved, dir));
    if (saved->tokenizer == NULL)
        return MICS_OK;
    const mics_status status = load_tokenizer_config(saved, &config);
    mics_json_close(config);
    return status;
}

mics_status run_hf_metadata_write(const mics_saved *saved, const char *dir, mics_dtype dtype)
{
    MICS_TRY(write_config(saved, dir, dtype));
    if (run_model_files_find(saved->files, GENERATION) == NULL)
        MICS_TRY(write_generation(saved, dir));
    return run_hf_metadata_write_tokens(saved, dir);
}

mics_status run_hf_metadata_write_tokens(const mics_saved *saved, const char *dir)
{
    MICS_TRY(write_tokenizer(saved, dir));
    MICS_TRY(write_files(saved, dir));
    return mics_file_sync_dir(dir);
}

// Without a path of its own, as memory may be what it lacks.
void run_hf_metadata_remove(const mics_saved *saved, const char *dir)
{
    const char *name = NULL;
    const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return;
    for (int i = 0; i < OURS; i++)
        (void)unlinkat(folder, ours[i], 0);
    while (saved->files != NULL && mics_json_next(mics_json_root(saved->files), &name) != NULL)
        (void)unlinkat(folder, name, 0);
    (void)unlinkat(folder, RUN_MODEL_TEMPLATES, AT_REMOVEDIR);
    close(folder);
}
