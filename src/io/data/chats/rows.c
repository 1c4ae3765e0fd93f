// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a row is, and its messages as a template wants them.
#include "io/data/chats/chat.h"
#include "mics/log.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

static const char *const field_texts[MICS_FIELDS] = {
    "messages",    "conversations", "prompt", "completion", "chosen", "rejected",
    "instruction", "input",         "output", "tools",      "role",   "content"};

// What no model here reads.
#define MEDIA "images", "image", "videos", "audios", "audio"
#define REFERENCES "ref_chosen_logps", "ref_rejected_logps" // TRL's, of pairs

const char *mics_chat_field_text(mics_chat_field field)
{
    return field_texts[field];
}

const char *mics_chat_name(const mics_chats_spec *spec, mics_chat_field field)
{
    return spec->fields[field] != NULL ? spec->fields[field] : field_texts[field];
}

mics_chat_columns mics_chats_columns(const mics_chats_spec *spec)
{
    mics_chat_columns columns = {.names = {[MICS_FIELDS] = "system",
                                           "history",
                                           "chat_template_kwargs",
                                           "weight",
                                           MEDIA,
                                           REFERENCES}};
    for (int i = 0; i < MICS_FIELDS; i++)
        columns.names[i] = mics_chat_name(spec, (mics_chat_field)i);
    return columns;
}

const mics_json_value *mics_chat_get(const mics_chats_spec *spec, const mics_json_value *row,
                                     mics_chat_field field)
{
    const mics_json_value *value = mics_json_get(row, mics_chat_name(spec, field));
    return mics_json_type_of(value) != MICS_JSON_NULL ? value : NULL;
}

static bool has(const mics_chats_spec *spec, const mics_json_value *row, mics_chat_field field)
{
    return mics_chat_get(spec, row, field) != NULL;
}

mics_chat_kind mics_chats_kind(const mics_chats_spec *spec, const mics_json_value *row)
{
    const bool answers = has(spec, row, MICS_FIELD_CHOSEN) && has(spec, row, MICS_FIELD_REJECTED);
    if (answers && spec->pairs)
        return MICS_CHAT_ANSWERS;
    if (has(spec, row, MICS_FIELD_MESSAGES) || has(spec, row, MICS_FIELD_CONVERSATIONS))
        return MICS_CHAT_MESSAGES;
    if (has(spec, row, MICS_FIELD_PROMPT) && has(spec, row, MICS_FIELD_COMPLETION))
        return MICS_CHAT_PAIR;
    return has(spec, row, MICS_FIELD_INSTRUCTION) && has(spec, row, MICS_FIELD_OUTPUT)
               ? MICS_CHAT_ALPACA
           : answers ? MICS_CHAT_ANSWERS
                     : MICS_CHAT_NONE;
}

bool mics_chat_pair(const mics_chats *chats, const mics_json_value *row, const char **prompt_out,
                    const char **completion_out)
{
    const mics_chats_spec *spec = &chats->spec;
    if (mics_chat_get(spec, row, MICS_FIELD_MESSAGES) != NULL ||
        mics_chat_get(spec, row, MICS_FIELD_CONVERSATIONS) != NULL)
        return false;
    *prompt_out = mics_json_string(mics_chat_get(spec, row, MICS_FIELD_PROMPT));
    *completion_out = mics_json_string(mics_chat_get(spec, row, MICS_FIELD_COMPLETION));
    return *prompt_out != NULL && *completion_out != NULL;
}

// ---- messages with other names ----

// ShareGPT's names of roles; others are the template's.
static const char *role_of(const char *from)
{
    static const char *const names[][2] = {
        {"human", "user"},    {"gpt", "assistant"},          {"chatgpt", "assistant"},
        {"bot", "assistant"}, {"function_response", "tool"}, {"observation", "tool"}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(from, names[i][0]) == 0)
            return names[i][1];
    }
    return from;
}

static mics_status fail_message(const char *name, int32_t index, const char *key)
{
    return mics_fail(MICS_ERR_INVALID,
                     "%s: message %d has no \"%s\" that is a text; data.fields names the fields of "
                     "role and content where they are others",
                     name, (int)index + 1, key);
}

// Names that a message's role and text have at last, whatever they were called.
static bool is_taken(const char *key)
{
    return strcmp(key, "role") == 0 || strcmp(key, "content") == 0;
}

// As transformers gives messages to templates: without nulls, and their reasoning under both names
// that templates read.
static const char *const reasonings[] = {"reasoning_content", "thinking", "reasoning"};

static bool has_value(const mics_json_value *message, const char *key)
{
    const mics_json_value *value = mics_json_get(message, key);
    return value != NULL && mics_json_type_of(value) != MICS_JSON_NULL;
}

static const mics_json_value *reasoning_of(const mics_json_value *message)
{
    for (size_t i = 0; i < sizeof reasonings / sizeof *reasonings; i++) {
        if (has_value(message, reasonings[i]))
            return mics_json_get(message, reasonings[i]);
    }
    return NULL;
}

static void write_reasoning(mics_text *to, const mics_json_value *message)
{
    const mics_json_value *reasoning = reasoning_of(message);
    for (int i = 0; i < 2 && reasoning != NULL; i++) {
        if (has_value(message, reasonings[i]))
            continue;
        mics_text_printf(to, ",\"%s\":", reasonings[i]);
        mics_json_write(to, reasoning);
    }
}

// Writes a message as {"role", "content", ...}: what a key was called in the row stays otherwise.
static mics_status write_message(mics_text *to, const char *name, int32_t index,
                                 const mics_json_value *message, const char *role,
                                 const char *content)
{
    const char *key = NULL;
    const mics_json_value *from = mics_json_get(message, role), *value = NULL;
    if (mics_json_type_of(from) != MICS_JSON_STRING)
        return fail_message(name, index, role);
    if (strcmp(mics_json_string(from), "function_call") == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: message %d is of \"function_call\"; write it as a message of "
                         "\"assistant\" with \"tool_calls\", which templates know",
                         name, (int)index + 1);
    mics_text_printf(to, "%s{\"role\":", to->used > 1 ? "," : "");
    mics_text_quoted(to, role_of(mics_json_string(from)));
    while ((value = mics_json_next(message, &key)) != NULL) {
        const bool said = strcmp(key, content) == 0;
        if (strcmp(key, role) == 0 || (!said && is_taken(key)) ||
            mics_json_type_of(value) == MICS_JSON_NULL)
            continue;
        mics_text_printf(to, ",");
        mics_text_quoted(to, said ? "content" : key);
        mics_text_printf(to, ":");
        mics_json_write(to, value);
    }
    write_reasoning(to, message);
    mics_text_printf(to, "}");
    return MICS_OK;
}

static mics_status write_messages(mics_text *to, const char *name, const mics_json_value *messages,
                                  const char *role, const char *content)
{
    for (int32_t i = 0; i < mics_json_count(messages); i++)
        MICS_TRY(write_message(to, name, i, mics_json_element(messages, i), role, content));
    return MICS_OK;
}

static void write_plain(mics_text *to, const char *role, const char *content)
{
    mics_text_printf(to, "%s{\"role\":\"%s\",\"content\":", to->used > 1 ? "," : "", role);
    mics_text_quoted(to, content);
    mics_text_printf(to, "}");
}

// ---- kinds of rows ----

static mics_status fail_type(const mics_chats_spec *spec, const char *name, mics_chat_field field,
                             const char *wanted)
{
    return mics_fail(MICS_ERR_INVALID, "%s: \"%s\" is no %s", name, mics_chat_name(spec, field),
                     wanted);
}

// Text of a field; "" where it is not there.
static mics_status text_of(const mics_chats_spec *spec, const char *name,
                           const mics_json_value *row, mics_chat_field field, const char **out)
{
    const mics_json_value *value = mics_chat_get(spec, row, field);
    *out = value != NULL ? mics_json_string(value) : "";
    return *out != NULL ? MICS_OK : fail_type(spec, name, field, "text");
}

// A row's own system prompt, which stands before the messages in ShareGPT's and Alpaca's rows.
static mics_status write_system(mics_text *to, const char *name, const mics_json_value *row)
{
    const mics_json_value *system = mics_json_get(row, "system");
    const mics_json_value *history = mics_json_get(row, "history");
    if (mics_json_count(history) > 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has a \"history\", which would be left out; write its turns as "
                         "\"messages\"",
                         name);
    if (mics_json_type_of(system) == MICS_JSON_STRING && mics_json_string(system)[0] != '\0')
        write_plain(to, "system", mics_json_string(system));
    return MICS_OK;
}

// Alpaca's: the template "alpaca" has a place of its own for the input; others have it in the text.
static mics_status write_alpaca(const mics_chats *chats, mics_text *to, const char *name,
                                const mics_json_value *row)
{
    const mics_chats_spec *spec = &chats->spec;
    const char *instruction = NULL, *input = NULL, *output = NULL;
    const bool apart = strcmp(chats->template_from, "alpaca") == 0;
    mics_text user = {.memory = chats->memory};
    MICS_TRY(text_of(spec, name, row, MICS_FIELD_INSTRUCTION, &instruction));
    MICS_TRY(text_of(spec, name, row, MICS_FIELD_INPUT, &input));
    MICS_TRY(text_of(spec, name, row, MICS_FIELD_OUTPUT, &output));
    MICS_TRY(write_system(to, name, row));
    mics_text_printf(&user, "%s%s%s", instruction, apart || input[0] == '\0' ? "" : "\n",
                     apart ? "" : input);
    write_plain(to, "user", user.bytes != NULL ? user.bytes : "");
    if (apart && to->used > 0) {
        to->used--; // the object's end
        mics_text_printf(to, ",\"input\":");
        mics_text_quoted(to, input);
        mics_text_printf(to, "}");
    }
    write_plain(to, "assistant", output);
    const mics_status status = mics_text_status(&user);
    mics_text_fini(&user);
    return status;
}

// The messages of a prompt, and those behind it; of a pair all may be these.
static mics_status write_answer(const mics_chats_spec *spec, mics_text *to, const char *name,
                                mics_chat *chat)
{
    const mics_json_value *prompt = mics_chat_get(spec, chat->row, MICS_FIELD_PROMPT);
    const mics_json_value *answer = mics_chat_get(spec, chat->row, chat->answer);
    const char *role = mics_chat_name(spec, MICS_FIELD_ROLE);
    const char *content = mics_chat_name(spec, MICS_FIELD_CONTENT);
    const bool told = mics_json_type_of(prompt) == MICS_JSON_ARRAY;
    if (mics_json_type_of(answer) != MICS_JSON_ARRAY ||
        (!told && chat->answer == MICS_FIELD_COMPLETION))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: \"%s\" and \"%s\" are neither two texts nor two arrays of messages",
                         name, mics_chat_name(spec, MICS_FIELD_PROMPT),
                         mics_chat_name(spec, chat->answer));
    if (told) {
        MICS_TRY(write_messages(to, name, prompt, role, content));
        chat->counted_from = mics_json_count(prompt);
    }
    return write_messages(to, name, answer, role, content);
}

static mics_status write_any(const mics_chats *chats, mics_text *to, const char *name,
                             mics_chat *chat)
{
    const mics_chats_spec *spec = &chats->spec;
    const mics_json_value *prompt = mics_chat_get(spec, chat->row, MICS_FIELD_PROMPT);
    const mics_json_value *talk = mics_chat_get(spec, chat->row, MICS_FIELD_CONVERSATIONS);
    const char *role = mics_chat_name(spec, MICS_FIELD_ROLE);
    const char *content = mics_chat_name(spec, MICS_FIELD_CONTENT);
    if (chat->answer != MICS_FIELD_COMPLETION)
        return write_answer(spec, to, name, chat);
    if (chat->messages != NULL)
        return write_messages(to, name, chat->messages, role, content);
    if (talk != NULL) {
        const bool from = mics_json_get(mics_json_element(talk, 0), "from") != NULL &&
                          spec->fields[MICS_FIELD_ROLE] == NULL;
        if (mics_json_type_of(talk) != MICS_JSON_ARRAY)
            return fail_type(spec, name, MICS_FIELD_CONVERSATIONS, "array of messages");
        MICS_TRY(write_system(to, name, chat->row));
        return write_messages(to, name, talk, from ? "from" : role, from ? "value" : content);
    }
    return prompt != NULL ? write_answer(spec, to, name, chat)
                          : write_alpaca(chats, to, name, chat->row);
}

// A message that a template can take as it is.
static bool is_plain(const mics_json_value *message)
{
    const char *key = NULL;
    const mics_json_value *value = NULL;
    bool plain = mics_json_type_of(mics_json_get(message, "role")) == MICS_JSON_STRING &&
                 reasoning_of(message) == NULL;
    while (plain && (value = mics_json_next(message, &key)) != NULL)
        plain = mics_json_type_of(value) != MICS_JSON_NULL;
    return plain;
}

static bool are_plain(const mics_chats_spec *spec, const mics_json_value *messages)
{
    bool plain = mics_json_type_of(messages) == MICS_JSON_ARRAY &&
                 spec->fields[MICS_FIELD_ROLE] == NULL && spec->fields[MICS_FIELD_CONTENT] == NULL;
    for (int32_t i = 0; plain && i < mics_json_count(messages); i++)
        plain = is_plain(mics_json_element(messages, i));
    return plain;
}

// A message without text calls tools, or has their answers: another field is an array or object.
static bool says_something(const mics_json_value *message)
{
    const char *key = NULL;
    const mics_json_value *value = mics_json_get(message, "content");
    if (value != NULL && mics_json_type_of(value) != MICS_JSON_NULL)
        return true;
    while ((value = mics_json_next(message, &key)) != NULL) {
        const mics_json_type type = mics_json_type_of(value);
        if (type == MICS_JSON_ARRAY || type == MICS_JSON_OBJECT)
            return true;
    }
    return false;
}

// ---- weights ----

static const char *weight_text(const mics_json_value *weight, char *text, size_t capacity)
{
    if (mics_json_is_number(weight))
        snprintf(text, capacity, "%g", mics_json_real(weight));
    else
        snprintf(text, capacity, "%s", "of another kind than a number");
    return text;
}

mics_status mics_chat_read_weight(const char *name, const mics_json_value *messages, int32_t index,
                                  bool *counts_out)
{
    const mics_json_value *weight = mics_json_get(mics_json_element(messages, index), "weight");
    char text[40];
    const bool none = mics_json_type_of(weight) == MICS_JSON_NULL;
    *counts_out = none || mics_json_real(weight) == 1;
    if (none || *counts_out || (mics_json_is_number(weight) && mics_json_real(weight) == 0))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: message %d has the weight %s; 0 (not learned) and 1 are built", name,
                     (int)index + 1, weight_text(weight, text, sizeof text));
}

mics_status mics_chat_check_whole(const char *name, const mics_json_value *messages, int32_t from)
{
    for (int32_t i = from; i < mics_json_count(messages); i++) {
        bool counts = false;
        MICS_TRY(mics_chat_read_weight(name, messages, i, &counts));
        if (!counts)
            return mics_fail(
                MICS_ERR_INVALID,
                "%s: message %d has the weight 0 (not learned), where all that is answered "
                "counts; leave the weight out, or write the row as \"messages\", with "
                "\"data\": {\"loss_on\": \"assistant\"}",
                name, (int)i + 1);
    }
    return MICS_OK;
}

mics_status mics_chat_check_weight(const char *name, const mics_json_value *row)
{
    const mics_json_value *weight = mics_json_get(row, "weight");
    char text[40];
    if (mics_json_type_of(weight) == MICS_JSON_NULL ||
        (mics_json_is_number(weight) && mics_json_real(weight) == 1))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: has the weight %s, and all rows count alike; leave the weight out, or "
                     "the row; \"weight\" in data.train weighs whole files",
                     name, weight_text(weight, text, sizeof text));
}

static mics_status check_messages(const char *name, const mics_json_value *messages)
{
    const int32_t count = mics_json_count(messages);
    if (count == 0)
        return mics_fail(MICS_ERR_INVALID, "%s: has no messages", name);
    for (int32_t i = 0; i < count; i++) {
        if (!says_something(mics_json_element(messages, i)))
            return fail_message(name, i, "content");
    }
    return MICS_OK;
}

static mics_status read_tools(const mics_chats *chats, const char *name, mics_chat *chat)
{
    const mics_json_value *tools = mics_chat_get(&chats->spec, chat->row, MICS_FIELD_TOOLS);
    const char *text = mics_json_string(tools);
    char where[PATH_MAX];
    chat->tools = tools;
    if (text == NULL)
        return MICS_OK;
    chat->tools = NULL;
    if (text[0] == '\0')
        return MICS_OK;
    snprintf(where, sizeof where, "%s, the text of \"%s\"", name,
             mics_chat_name(&chats->spec, MICS_FIELD_TOOLS));
    MICS_TRY(mics_json_parse_line(chats->memory, where, text, strlen(text), &chat->own_tools));
    chat->tools = mics_json_root(chat->own_tools);
    return MICS_OK;
}

static mics_status rewrite(const mics_chats *chats, const char *name, mics_chat *chat)
{
    mics_text text = {.memory = chats->memory};
    mics_text_printf(&text, "[");
    mics_status status = write_any(chats, &text, name, chat);
    mics_text_printf(&text, "]");
    if (status == MICS_OK)
        status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_json_parse_line(chats->memory, name, text.bytes, text.used, &chat->own);
    mics_text_fini(&text);
    MICS_TRY(status);
    chat->messages = mics_json_root(chat->own);
    return MICS_OK;
}

static mics_status check_template(const mics_chats *chats, const char *name)
{
    if (chats->template != NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: is a chat, and the tokenizer's folder has no chat template; name one "
                     "in data.chat_template: a file, or \"chatml\", \"llama3\", \"mistral\" or "
                     "\"alpaca\"",
                     name);
}

mics_status mics_chat_read_answer(const mics_chats *chats, const char *name,
                                  const mics_json_value *row, mics_chat_field answer,
                                  mics_chat *chat_out)
{
    *chat_out = (mics_chat){.row = row, .answer = answer, .counted_from = -1};
    MICS_TRY(check_template(chats, name));
    MICS_TRY(read_tools(chats, name, chat_out));
    MICS_TRY(rewrite(chats, name, chat_out));
    return check_messages(name, chat_out->messages);
}

mics_status mics_chat_read(const mics_chats *chats, const char *name, const mics_json_value *row,
                           mics_chat *chat_out)
{
    const mics_chats_spec *spec = &chats->spec;
    *chat_out = (mics_chat){.row = row,
                            .messages = mics_chat_get(spec, row, MICS_FIELD_MESSAGES),
                            .answer = MICS_FIELD_COMPLETION,
                            .counted_from = -1};
    if (mics_chats_kind(spec, row) == MICS_CHAT_NONE)
        return mics_fail(
            MICS_ERR_INVALID,
            "%s: has neither \"%s\" nor \"%s\" nor \"%s\" and \"%s\" nor \"%s\" and "
            "\"%s\", as rows of chats must; data.fields names fields that are called "
            "otherwise",
            name, mics_chat_name(spec, MICS_FIELD_MESSAGES),
            mics_chat_name(spec, MICS_FIELD_CONVERSATIONS), mics_chat_name(spec, MICS_FIELD_PROMPT),
            mics_chat_name(spec, MICS_FIELD_COMPLETION),
            mics_chat_name(spec, MICS_FIELD_INSTRUCTION), mics_chat_name(spec, MICS_FIELD_OUTPUT));
    MICS_TRY(check_template(chats, name));
    MICS_TRY(read_tools(chats, name, chat_out));
    if (chat_out->messages != NULL && mics_json_type_of(chat_out->messages) != MICS_JSON_ARRAY)
        return fail_type(spec, name, MICS_FIELD_MESSAGES, "array of messages");
    if (!are_plain(spec, chat_out->messages))
        MICS_TRY(rewrite(chats, name, chat_out));
    return check_messages(name, chat_out->messages);
}

// Nulls, empty texts and lists are none.
mics_status mics_chat_check_media(const char *name, const mics_json_value *row)
{
    static const char *const media[] = {MEDIA};
    for (size_t i = 0; i < sizeof media / sizeof *media; i++) {
        const mics_json_value *value = mics_json_get(row, media[i]);
        const char *text = mics_json_string(value);
        if (mics_json_count(value) > 0 || (text != NULL && text[0] != '\0'))
            return mics_fail(MICS_ERR_INVALID,
                             "%s: has \"%s\", and models here read text alone; take the field out, "
                             "or the row",
                             name, media[i]);
    }
    return MICS_OK;
}

// ShareGPT's and Alpaca's rows have it as their first message.
static bool leaves_system(const mics_chats_spec *spec, const mics_json_value *row)
{
    const mics_chat_kind kind = mics_chats_kind(spec, row);
    return kind == MICS_CHAT_MESSAGES ? has(spec, row, MICS_FIELD_MESSAGES)
                                      : kind != MICS_CHAT_ALPACA;
}

bool mics_chat_is_lossy(const mics_chats *chats, const mics_chat *chat, const mics_buffer *text)
{
    static const char part[] = "'type': '";
    const mics_json_value *arguments = mics_json_get(chat->row, "chat_template_kwargs");
    const char *system = mics_json_string(mics_json_get(chat->row, "system"));
    bool lossy =
        (leaves_system(&chats->spec, chat->row) && system != NULL && system[0] != '\0') ||
        (mics_json_count(arguments) > 0 && !mics_json_is_same(arguments, chats->spec.variables)) ||
        (mics_json_count(chat->tools) > 0 && !chats->tools);
    for (int32_t i = 0; i < mics_json_count(chat->messages) && !lossy; i++) {
        const mics_json_value *message = mics_json_element(chat->messages, i);
        lossy = (mics_json_count(mics_json_get(message, "tool_calls")) > 0 && !chats->calls) ||
                (mics_json_count(mics_json_get(message, "content")) > 0 &&
                 memmem(text->data, text->bytes, part, sizeof part - 1) != NULL);
    }
    return lossy;
}

bool mics_chat_has_references(const mics_json_value *row)
{
    static const char *const names[] = {REFERENCES};
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        found = found || mics_json_type_of(mics_json_get(row, names[i])) != MICS_JSON_NULL;
    return found;
}

bool mics_chat_is_blank(const char *text)
{
    return text != NULL && text[strspn(text, " \t\n\v\f\r")] == '\0';
}

bool mics_chat_is_empty(const mics_json_value *message)
{
    const char *role = mics_json_string(mics_json_get(message, "role")), *key = NULL;
    const mics_json_value *value = NULL;
    bool more = false;
    while ((value = mics_json_next(message, &key)) != NULL)
        more = more || mics_json_count(value) > 0;
    return role != NULL && strcmp(role, "assistant") == 0 && !more &&
           mics_chat_is_blank(mics_json_string(mics_json_get(message, "content"))) &&
           mics_json_string(mics_json_get(message, "reasoning_content")) == NULL;
}

void mics_chat_fini(mics_chat *chat)
{
    mics_json_close(chat->own);
    mics_json_close(chat->own_tools);
    *chat = (mics_chat){0};
}
