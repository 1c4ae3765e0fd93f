// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A chat as text, and which of its bytes count.
//
// A template with {% generation %} blocks says itself what the assistant writes. With others, what
// counts of message i is what the chat up to it has beyond the chat before it with a generation
// prompt: where both are beginnings of the whole. Templates that write earlier turns otherwise (without
// their reasoning) are told by the message's own text and what closes it. What cannot be told so is
// refused.
#include "io/data/chats/chats.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

typedef struct rendering {
    const mics_chats *chats;
    const mics_chat *chat;
    const char *name;
    mics_buffer whole;             // all messages
    mics_buffer before, with;      // those before a message, and with it
    mics_template_spans generated; // of the whole
} rendering;

// ---- texts ----

static const mics_template *template_of(const rendering *r)
{
    const bool tools = r->chat->tools != NULL && r->chats->tool_template != NULL;
    return tools ? r->chats->tool_template : r->chats->template;
}

static mics_status render(const rendering *r, int32_t messages, bool prompt, mics_buffer *out,
                          mics_template_spans *spans)
{
    const mics_chats *chats = r->chats;
    const mics_template_input in = {.chat = r->name,
                                    .messages = r->chat->messages,
                                    .left_out = mics_json_count(r->chat->messages) - messages,
                                    .tools = r->chat->tools,
                                    .variables = chats->spec.variables,
                                    .strings = chats->strings,
                                    .string_count = MICS_CHAT_STRINGS,
                                    .add_generation_prompt = prompt,
                                    .now_s = chats->spec.date_s};
    out->bytes = 0;
    return mics_template_render(template_of(r), &in, out, spans);
}

static bool begins_with(const mics_buffer *whole, const mics_buffer *part)
{
    return part->bytes <= whole->bytes &&
           (part->bytes == 0 || memcmp(whole->data, part->data, part->bytes) == 0);
}

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// What a message says, without white space around it and the reasoning before it; NULL: no text.
static const char *said(const mics_json_value *message, size_t *bytes_out)
{
    static const char end_of_thought[] = "</think>";
    const mics_json_value *content = mics_json_get(message, "content");
    const char *text = mics_json_string(content), *thought = text, *end = NULL;
    if (text == NULL)
        return NULL;
    while ((thought = strstr(thought, end_of_thought)) != NULL)
        text = thought += sizeof end_of_thought - 1;
    for (end = text + strlen(text); end > text && is_white(end[-1]);)
        end--;
    while (text < end && is_white(*text))
        text++;
    *bytes_out = (size_t)(end - text);
    return *bytes_out > 0 ? text : NULL;
}

static const char *find_last(const mics_buffer *in, const char *text, size_t bytes)
{
    for (size_t at = in->bytes >= bytes ? in->bytes - bytes + 1 : 0; at-- > 0;) {
        if (memcmp(in->data + at, text, bytes) == 0)
            return in->data + at;
    }
    return NULL;
}

// ---- spans by prefixes ----

static mics_status cannot_tell(const rendering *r, int32_t message, const char *why)
{
    return mics_fail(MICS_ERR_UNSUPPORTED,
                     "%s: which tokens are the assistant's in message %d cannot be told from %s: "
                     "%s; put {%% generation %%} and {%% endgeneration %%} around them in a template "
                     "that data.chat_template names, or set data.loss_on \"all\"",
                     r->name, (int)message + 1, r->chats->template_from, why);
}

// Where the program's part before message i ends, in the whole.
static mics_status find_begin(rendering *r, int32_t i, size_t *begin_out)
{
    const mics_json_value *message = mics_json_element(r->chat->messages, i);
    size_t bytes = 0, at = 0;
    const char *text = said(message, &bytes);
    MICS_TRY(render(r, i, true, &r->before, NULL));
    if (!begins_with(&r->whole, &r->before))
        return cannot_tell(r, i, "it writes the messages before this one otherwise once it is there");
    MICS_TRY(render(r, i, false, &r->with, NULL));
    *begin_out = at = r->before.bytes;
    if (r->with.bytes != r->before.bytes || text == NULL)
        return MICS_OK;
    while (at < r->whole.bytes && is_white(r->whole.data[at]))
        at++;
    if (r->whole.bytes - at >= bytes && memcmp(r->whole.data + at, text, bytes) == 0)
        return MICS_OK;
    return cannot_tell(r, i,
                       "it knows no add_generation_prompt, and writes more than the message's text");
}

// Where message i ends, in the whole, if this template writes earlier turns otherwise than the last.
static mics_status find_end_by_text(const rendering *r, int32_t i, size_t begin, size_t *end_out)
{
    static const char why[] = "it writes this message otherwise once others follow";
    size_t bytes = 0;
    const char *text = said(mics_json_element(r->chat->messages, i), &bytes);
    const char *in_part = text != NULL ? find_last(&r->with, text, bytes) : NULL;
    if (in_part == NULL || in_part < r->with.data + begin || begin >= r->whole.bytes)
        return cannot_tell(r, i, why);
    const size_t most = (size_t)(in_part - r->with.data);
    const char *closing = in_part + bytes, *end = r->with.data + r->with.bytes;
    const size_t closes = (size_t)(end - closing);
    for (size_t at = begin; at <= most && at + bytes + closes <= r->whole.bytes; at++) {
        if (memcmp(r->whole.data + at, text, bytes) == 0 &&
            memcmp(r->whole.data + at + bytes, closing, closes) == 0) {
            *end_out = at + bytes + closes;
            return MICS_OK;
        }
    }
    return cannot_tell(r, i, why);
}

static mics_status find_end(rendering *r, int32_t i, size_t begin, size_t *end_out)
{
    *end_out = r->whole.bytes;
    if (i + 1 == mics_json_count(r->chat->messages))
        return MICS_OK;
    MICS_TRY(render(r, i + 1, false, &r->with, NULL));
    if (!begins_with(&r->whole, &r->with) || r->with.bytes < begin)
        return find_end_by_text(r, i, begin, end_out);
    *end_out = r->with.bytes;
    return MICS_OK;
}

static bool is_assistant(const mics_chat *chat, int32_t i)
{
    const char *role =
        mics_json_string(mics_json_get(mics_json_element(chat->messages, i), "role"));
    return role != NULL && (strcmp(role, "assistant") == 0 || strcmp(role, "model") == 0);
}

// The last message of the assistant; -1: it has none.
static int32_t last_assistant(const mics_chat *chat)
{
    int32_t last = mics_json_count(chat->messages) - 1;
    while (last >= 0 && !is_assistant(chat, last))
        last--;
    return last;
}

static mics_status span_messages(rendering *r, mics_chat_text *text)
{
    const int32_t last = last_assistant(r->chat);
    for (int32_t i = r->chats->spec.loss_on == MICS_LOSS_LAST ? last : 0; i >= 0 && i <= last; i++) {
        size_t begin = 0, end = 0;
        if (!is_assistant(r->chat, i))
            continue;
        MICS_TRY(find_begin(r, i, &begin));
        MICS_TRY(find_end(r, i, begin, &end));
        MICS_TRY(mics_chat_text_add_span(text, begin, end));
    }
    return MICS_OK;
}

// ---- spans by generation blocks ----

static mics_status span_generated(rendering *r, mics_chat_text *text)
{
    const int32_t last = last_assistant(r->chat);
    size_t from = 0;
    if (r->chats->spec.loss_on == MICS_LOSS_LAST && last >= 0 && r->generated.count > 0) {
        from = r->generated.list[r->generated.count - 1].begin;
        MICS_TRY(render(r, last, true, &r->before, NULL));
        from = begins_with(&r->whole, &r->before) && r->before.bytes < from ? r->before.bytes : from;
    }
    for (size_t i = 0; i < r->generated.count; i++) {
        if (r->generated.list[i].begin >= from)
            MICS_TRY(mics_chat_text_add_span(text, r->generated.list[i].begin,
                                             r->generated.list[i].end));
    }
    return MICS_OK;
}

// ---- all ----

static mics_status find_spans(rendering *r, mics_chat_text *text)
{
    const bool completes = r->chat->counted_from >= 0;
    if (r->chats->spec.loss_on == MICS_LOSS_ALL && !(completes && r->chats->spec.completions))
        return mics_chat_text_add_span(text, 0, r->whole.bytes);
    if (completes) {
        MICS_TRY(render(r, r->chat->counted_from, true, &r->before, NULL));
        if (!begins_with(&r->whole, &r->before))
            return cannot_tell(r, r->chat->counted_from,
                               "it writes the prompt otherwise once the completion is there");
        return mics_chat_text_add_span(text, r->before.bytes, r->whole.bytes);
    }
    return mics_template_has_generation(template_of(r)) ? span_generated(r, text)
                                                         : span_messages(r, text);
}

mics_status mics_chat_render(const mics_chats *chats, const char *name, const mics_chat *chat,
                             mics_chat_text *text_out)
{
    rendering r = {.chats = chats,
                   .chat = chat,
                   .name = name,
                   .whole.memory = chats->memory,
                   .before.memory = chats->memory,
                   .with.memory = chats->memory,
                   .generated.memory = chats->memory};
    mics_status status =
        render(&r, mics_json_count(chat->messages), false, &r.whole, &r.generated);
    if (status == MICS_OK)
        status = find_spans(&r, text_out);
    text_out->text = r.whole;
    mics_buffer_fini(&r.before);
    mics_buffer_fini(&r.with);
    mics_template_spans_fini(&r.generated);
    return status;
}
