// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What rows become tokens by: the template, and the tokenizer's special tokens by name.
#include "base/file.h"
#include "base/free.h"
#include "io/data/chats/builtin.h"
#include "io/data/chats/chat.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

enum { MAX_CONFIG = 64 << 20, MAX_TEMPLATE = 4 << 20 };

// ---- special tokens by name ----

// In the order of mics_chats.strings.
static const char *const token_names[MICS_CHAT_STRINGS] = {
    "bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"};

// A token's text: a string, or an object that has it.
static const char *token_text(const mics_json *json, const char *name)
{
    const mics_json_value *value = json != NULL ? mics_json_at(json, name) : NULL;
    if (mics_json_type_of(value) == MICS_JSON_OBJECT)
        value = mics_json_get(value, "content");
    return mics_json_string(value);
}

static mics_status load(mics_chats *chats, const char *name, mics_json **json_out)
{
    char *path = NULL;
    mics_status status = MICS_OK;
    if (chats->spec.folder == NULL)
        return MICS_OK;
    MICS_TRY(mics_file_join(chats->memory, chats->spec.folder, name, &path));
    if (mics_file_is_there(path))
        status = mics_json_load(chats->memory, path, MAX_CONFIG, json_out);
    mics_free(chats->memory, path);
    return status;
}

// The token that a text alone is; -1: it is none, or several.
static mics_status token_of(const mics_chats *chats, const char *text, int32_t *token_out)
{
    int32_t *tokens = NULL;
    int64_t count = 0;
    *token_out = -1;
    MICS_TRY(mics_tokenizer_encode(chats->spec.tokenizer, text, strlen(text), 1, &tokens, &count));
    if (count == 1)
        *token_out = tokens[0];
    mics_free(chats->spec.tokenizer->memory, tokens);
    return MICS_OK;
}

static mics_status read_tokens(mics_chats *chats)
{
    const mics_tokenizer *tokenizer = chats->spec.tokenizer;
    MICS_TRY(load(chats, "tokenizer_config.json", &chats->config));
    MICS_TRY(load(chats, "special_tokens_map.json", &chats->map));
    for (int i = 0; i < MICS_CHAT_STRINGS; i++) {
        const char *text = token_text(chats->config, token_names[i]);
        chats->strings[i] = (mics_template_string){
            token_names[i], text != NULL ? text : token_text(chats->map, token_names[i])};
    }
    MICS_TRY(MICS_NEW(chats->memory, mics_tokenizer_vocab(tokenizer), &chats->special));
    mics_tokenizer_specials(tokenizer, chats->special);
    chats->end_token = mics_tokenizer_separator(tokenizer);
    return chats->strings[MICS_CHAT_EOS].text != NULL
               ? token_of(chats, chats->strings[MICS_CHAT_EOS].text, &chats->end_token)
               : MICS_OK;
}

// ---- the template ----

static mics_status compile(mics_chats *chats, const char *from, const char *text, size_t bytes,
                           mics_template **template_out)
{
    if (chats->template_from == NULL)
        MICS_TRY(mics_strdup(chats->memory, from, &chats->template_from));
    if (chats->spec.chat_template != NULL)
        MICS_TRY(mics_strdup(chats->memory, text, &chats->asked));
    chats->identity = XXH3_64bits_withSeed(text, bytes, chats->identity);
    chats->dated |= strstr(text, "strftime_now") != NULL;
    chats->tools |= strstr(text, "tools") != NULL;
    chats->calls |= strstr(text, "tool_calls") != NULL;
    return mics_template_compile(chats->memory, from, text, bytes, NULL, template_out);
}

static mics_status compile_file(mics_chats *chats, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    MICS_TRY(mics_file_read_whole(chats->memory, path, MAX_TEMPLATE, &text, &bytes));
    const mics_status status = compile(chats, path, text, bytes, &chats->template);
    mics_free(chats->memory, text);
    return status;
}

// Templates of the vocabulary that the tokenizer does not have would be split into several tokens.
static mics_status compile_builtin(mics_chats *chats, const mics_chat_builtin *builtin)
{
    for (int i = 0; builtin->tokens[i] != NULL; i++) {
        int32_t token = -1;
        MICS_TRY(token_of(chats, builtin->tokens[i], &token));
        if (token < 0)
            return mics_fail(MICS_ERR_INVALID,
                             "data.chat_template: \"%s\" needs the token %s, which this tokenizer "
                             "does not have; take another template, or a tokenizer with it",
                             builtin->name, builtin->tokens[i]);
    }
    if (strstr(builtin->text, "eos_token") != NULL && chats->strings[MICS_CHAT_EOS].text == NULL)
        return mics_fail(
            MICS_ERR_INVALID,
            "data.chat_template: \"%s\" ends what the assistant writes with the "
            "eos_token, which no tokenizer_config.json beside the tokenizer names; add "
            "one, or take a file of a template that ends it otherwise",
            builtin->name);
    return compile(chats, builtin->name, builtin->text, strlen(builtin->text), &chats->template);
}

// Several by name: "default", and "tool_use" for chats with tools.
static mics_status compile_list(mics_chats *chats, const mics_json_value *list)
{
    for (int32_t i = 0; i < mics_json_count(list); i++) {
        const mics_json_value *item = mics_json_element(list, i);
        const char *name = mics_json_string(mics_json_get(item, "name"));
        const char *text = mics_json_string(mics_json_get(item, "template"));
        if (name == NULL || text == NULL)
            continue;
        if (strcmp(name, "default") == 0 && chats->template == NULL)
            MICS_TRY(compile(chats, "tokenizer_config.json", text, strlen(text), &chats->template));
        else if (strcmp(name, "tool_use") == 0 && chats->tool_template == NULL)
            MICS_TRY(compile(chats, "tokenizer_config.json, tool_use", text, strlen(text),
                             &chats->tool_template));
    }
    if (chats->template != NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s/tokenizer_config.json: chat_template has no template that is called "
                     "\"default\"; name a file in data.chat_template",
                     chats->spec.folder);
}

static mics_status compile_folder(mics_chats *chats)
{
    const mics_json_value *own =
        chats->config != NULL ? mics_json_at(chats->config, "chat_template") : NULL;
    const char *text = mics_json_string(own);
    char *path = NULL;
    mics_status status = MICS_OK;
    if (chats->spec.folder == NULL)
        return MICS_OK;
    MICS_TRY(mics_file_join(chats->memory, chats->spec.folder, "chat_template.jinja", &path));
    if (mics_file_is_there(path))
        status = compile_file(chats, path);
    else if (text != NULL)
        status = compile(chats, "tokenizer_config.json", text, strlen(text), &chats->template);
    else if (mics_json_type_of(own) == MICS_JSON_ARRAY)
        status = compile_list(chats, own);
    mics_free(chats->memory, path);
    return status;
}

// Variables of that name would stand for every row's.
static mics_status check_variables(const mics_chats *chats)
{
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (mics_json_get(chats->spec.variables, taken[i]) != NULL)
            return mics_fail(MICS_ERR_INVALID,
                             "data.template_variables: \"%s\" is each row's own; leave it out",
                             taken[i]);
    }
    return MICS_OK;
}

static mics_status open_template(mics_chats *chats)
{
    const char *asked = chats->spec.chat_template;
    struct stat file;
    const mics_chat_builtin *builtin = asked != NULL ? mics_chat_builtin_find(asked) : NULL;
    if (asked == NULL)
        return compile_folder(chats);
    if (builtin != NULL)
        return compile_builtin(chats, builtin);
    if (stat(asked, &file) != 0 || S_ISDIR(file.st_mode))
        return mics_fail(MICS_ERR_INVALID,
                         "data.chat_template: \"%s\" is no file here, nor \"chatml\", \"llama3\", "
                         "\"mistral\" or \"alpaca\"; of a folder, name its chat_template.jinja",
                         asked);
    return compile_file(chats, asked);
}

// ---- the whole ----

// Goes up when rows become other tokens than before: tokens in caches are then made again.
enum { ROWS_VERSION = 2 };

static void hash_text(mics_chats *chats, const char *text)
{
    if (text != NULL)
        chats->identity = XXH3_64bits_withSeed(text, strlen(text) + 1, chats->identity);
    else
        chats->identity = XXH3_64bits_withSeed("", 0, chats->identity);
}

static mics_status hash_all(mics_chats *chats)
{
    const mics_chats_spec *spec = &chats->spec;
    const int64_t how[] = {ROWS_VERSION,      spec->loss_on,
                           spec->completions, chats->dated ? spec->date_s : 0,
                           chats->end_token,  spec->pairs};
    mics_text variables = {.memory = chats->memory};
    mics_json_write(&variables, spec->variables);
    hash_text(chats, variables.bytes);
    for (int i = 0; i < MICS_FIELDS; i++)
        hash_text(chats, spec->fields[i]);
    for (int i = 0; i < MICS_CHAT_STRINGS; i++)
        hash_text(chats, chats->strings[i].text);
    chats->identity = XXH3_64bits_withSeed(how, sizeof how, chats->identity);
    const mics_status status = mics_text_status(&variables);
    mics_text_fini(&variables);
    return status;
}

mics_status mics_chats_open(mics_memory *memory, const mics_chats_spec *spec,
                            mics_chats **chats_out)
{
    mics_chats *chats = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &chats));
    *chats = (mics_chats){.memory = memory, .spec = *spec};
    mics_status status = read_tokens(chats);
    if (status == MICS_OK)
        status = check_variables(chats);
    if (status == MICS_OK)
        status = open_template(chats);
    if (status == MICS_OK)
        status = hash_all(chats);
    if (status != MICS_OK) {
        mics_chats_close(chats);
        return status;
    }
    *chats_out = chats;
    return MICS_OK;
}

void mics_chats_close(mics_chats *chats)
{
    if (chats == NULL)
        return;
    mics_template_free(chats->template);
    mics_template_free(chats->tool_template);
    mics_json_close(chats->config);
    mics_json_close(chats->map);
    MICS_FREE_ALL(chats->memory, chats->template_from, chats->asked, chats->special, chats);
}

const mics_chats_spec *mics_chats_spec_of(const mics_chats *chats)
{
    return &chats->spec;
}

uint64_t mics_chats_identity(const mics_chats *chats)
{
    return chats->identity;
}

const char *mics_chats_template_asked(const mics_chats *chats)
{
    return chats != NULL ? chats->asked : NULL;
}

const char *mics_chats_template_from(const mics_chats *chats)
{
    return chats->template_from;
}

// ---- a row ----

static mics_status encode_chat(const mics_chats *chats, mics_encoder *encoder, const char *name,
                               const mics_json_value *row, mics_token_list *list,
                               mics_shard_notes *notes)
{
    mics_chat chat = {0};
    mics_chat_text text = {.text.memory = chats->memory};
    mics_status status = mics_chat_read(chats, name, row, &chat);
    if (status == MICS_OK)
        status = mics_chat_render(chats, name, &chat, &text);
    if (status == MICS_OK)
        status = mics_chat_text_encode(chats, encoder, &text, list);
    for (int32_t i = 0; status == MICS_OK && i < mics_json_count(chat.messages); i++) {
        const mics_json_value *message = mics_json_element(chat.messages, i);
        mics_chat_note_specials(chats, mics_json_string(mics_json_get(message, "content")), notes);
        notes->empty += mics_chat_is_empty(message);
    }
    notes->lossy += status == MICS_OK && mics_chat_is_lossy(chats, &chat, &text.text);
    mics_chat_text_fini(&text);
    mics_chat_fini(&chat);
    return status;
}

static mics_status encode_completion(const mics_chats *chats, mics_encoder *encoder,
                                     const char *prompt, const char *completion,
                                     mics_token_list *list, mics_shard_notes *notes)
{
    const size_t head = strlen(prompt), tail = strlen(completion);
    const bool all = chats->spec.loss_on == MICS_LOSS_ALL && !chats->spec.completions;
    mics_chat_text text = {.text.memory = chats->memory, .framed = true};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(mics_buffer_append(&text.text, prompt, head));
    MICS_TRY_OUT(mics_buffer_append(&text.text, completion, tail));
    MICS_TRY_OUT(mics_chat_text_add_span(&text, all ? 0 : head, head + tail));
    MICS_TRY_OUT(mics_chat_text_encode(chats, encoder, &text, list));
    mics_chat_note_specials(chats, prompt, notes);
    mics_chat_note_specials(chats, completion, notes);
    notes->empty += mics_chat_is_blank(completion);
out:
    mics_chat_text_fini(&text);
    return status;
}

mics_status mics_chats_tokens(const mics_chats *chats, const char *name, const mics_json_value *row,
                              int32_t **tokens_out, int64_t *count_out)
{
    mics_encoder encoder;
    mics_token_list list = {.memory = chats->memory};
    mics_shard_notes notes = {0};
    MICS_TRY(mics_encoder_open(chats->spec.tokenizer, true, &encoder));
    const mics_status status = mics_chats_encode(chats, &encoder, name, row, &list, &notes);
    mics_encoder_fini(&encoder);
    *tokens_out = list.tokens;
    *count_out = list.count;
    if (status != MICS_OK)
        mics_token_list_fini(&list);
    return status;
}

mics_status mics_chats_encode(const mics_chats *chats, mics_encoder *encoder, const char *name,
                              const mics_json_value *row, mics_token_list *list,
                              mics_shard_notes *notes)
{
    const char *prompt = NULL, *completion = NULL;
    const int64_t before = list->count;
    MICS_TRY(mics_chat_check_weight(name, row));
    MICS_TRY(mics_chat_check_media(name, row));
    if (chats->spec.pairs)
        MICS_TRY(mics_chat_encode_pair(chats, encoder, name, row, list, notes));
    else if (mics_chat_pair(chats, row, &prompt, &completion))
        MICS_TRY(encode_completion(chats, encoder, prompt, completion, list, notes));
    else
        MICS_TRY(encode_chat(chats, encoder, name, row, list, notes));
    return list->count > before ? MICS_OK
                                : mics_fail(MICS_ERR_INVALID, "%s: becomes no tokens", name);
}
