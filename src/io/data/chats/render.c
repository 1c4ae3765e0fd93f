// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A chat as text, and which of its bytes count.
//
// A template with {% generation %} blocks says itself what the assistant writes. With others, what
// counts of message i is what the chat up to it has beyond the chat before it with a generation
// prompt: where both are beginnings of the whole. Templates that write a turn otherwise once others
// follow (without its reasoning) are asked again, with a mark in place of the message's text: if all
// else stays as it was, the text stands where the mark does, and ends with what closes it where it is
// the last. What cannot be told so is refused.
#include "io/data/chats/chat.h"
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

// ---- where a message's text stands ----

// Bytes of a text without white space around it.
typedef struct slice {
    const char *at;
    size_t bytes;
} slice;

static slice trimmed(const char *text)
{
    const char *end = text + strlen(text);
    while (end > text && is_white(end[-1]))
        end--;
    while (text < end && is_white(*text))
        text++;
    return (slice){text, (size_t)(end - text)};
}

// Behind the reasoning that a text begins with.
static const char *after_thought(const char *text)
{
    static const char end_of_thought[] = "</think>";
    for (const char *at = text; (at = strstr(at, end_of_thought)) != NULL;)
        text = at += sizeof end_of_thought - 1;
    return text;
}

static bool is_at(const mics_buffer *in, size_t at, slice text)
{
    return in->bytes >= at && in->bytes - at >= text.bytes &&
           (text.bytes == 0 || memcmp(in->data + at, text.at, text.bytes) == 0);
}

static const char *find_last(const mics_buffer *in, slice text)
{
    for (size_t at = in->bytes >= text.bytes ? in->bytes - text.bytes + 1 : 0; at-- > 0;) {
        if (is_at(in, at, text))
            return in->data + at;
    }
    return NULL;
}

static const char mark[] = "mics7Qm4xMark4mQ7";

// The messages with a mark in place of what message i says.
static mics_status mark_message(const rendering *r, int32_t i, mics_json **marked_out)
{
    mics_text text = {.memory = r->chats->memory};
    for (int32_t m = 0; m < mics_json_count(r->chat->messages); m++) {
        const mics_json_value *message = mics_json_element(r->chat->messages, m), *value = NULL;
        const char *key = NULL;
        mics_text_printf(&text, m > 0 ? "," : "[");
        if (m != i) {
            mics_json_write(&text, message);
            continue;
        }
        mics_text_printf(&text, "{\"content\":\"%s\"", mark);
        while ((value = mics_json_next(message, &key)) != NULL) {
            if (strcmp(key, "content") == 0)
                continue;
            mics_text_printf(&text, ",");
            mics_text_quoted(&text, key);
            mics_text_printf(&text, ":");
            mics_json_write(&text, value);
        }
        mics_text_printf(&text, "}");
    }
    mics_text_printf(&text, "]");
    mics_status status = mics_text_status(&text);
    if (status == MICS_OK)
        status = mics_json_parse_line(text.memory, r->name, text.bytes, text.used, marked_out);
    mics_text_fini(&text);
    return status;
}

// Finds the text of message i in the whole; *found_out empty: it cannot be told.
static mics_status locate(rendering *r, int32_t i, mics_chat_span *found_out)
{
    const mics_json_value *message = mics_json_element(r->chat->messages, i);
    const char *text = mics_json_string(mics_json_get(message, "content"));
    const bool calls = mics_json_count(mics_json_get(message, "tool_calls")) > 0;
    mics_json *json = NULL;
    *found_out = (mics_chat_span){0};
    if (text == NULL || (calls && trimmed(after_thought(text)).bytes == 0))
        return MICS_OK;
    MICS_TRY(mark_message(r, i, &json));
    mics_chat chat = *r->chat;
    rendering other = *r;
    chat.messages = mics_json_root(json);
    other.chat = &chat;
    const mics_status status =
        render(&other, mics_json_count(chat.messages), false, &r->with, NULL);
    mics_json_close(json);
    MICS_TRY(status);
    const slice all = {r->with.data, r->with.bytes}, wanted = {mark, sizeof mark - 1};
    const char *at = find_last(&r->with, wanted);
    if (at == NULL)
        return MICS_OK;
    const size_t before = (size_t)(at - all.at), after = all.bytes - before - wanted.bytes;
    const slice choices[] = {{text, strlen(text)}, trimmed(text), trimmed(after_thought(text))};
    for (size_t c = 0; c < sizeof choices / sizeof *choices; c++) {
        if (before + choices[c].bytes + after == r->whole.bytes &&
            is_at(&r->whole, 0, (slice){all.at, before}) && is_at(&r->whole, before, choices[c]) &&
            is_at(&r->whole, before + choices[c].bytes, (slice){at + wanted.bytes, after})) {
            *found_out = (mics_chat_span){before, before + choices[c].bytes};
            return MICS_OK;
        }
    }
    return MICS_OK;
}

// ---- spans by prefixes ----

static mics_status cannot_tell(const rendering *r, int32_t message, const char *why)
{
    return mics_fail(
        MICS_ERR_INVALID,
        "%s: which tokens are the assistant's in message %d cannot be told from %s: "
        "%s; put {%% generation %%} and {%% endgeneration %%} around them in a template "
        "that data.chat_template names, or set data.loss_on \"all\"",
        r->name, (int)message + 1, r->chats->template_from, why);
}

// Where the program's part before message i ends, in the whole.
static mics_status find_begin(rendering *r, int32_t i, size_t *begin_out)
{
    mics_chat_span text;
    MICS_TRY(render(r, i, true, &r->before, NULL));
    MICS_TRY(render(r, i, false, &r->with, NULL));
    *begin_out = r->before.bytes;
    if (begins_with(&r->whole, &r->before) && r->with.bytes != r->before.bytes)
        return MICS_OK;
    MICS_TRY(locate(r, i, &text));
    if (text.end == 0 && begins_with(&r->whole, &r->before))
        return MICS_OK; // no text but calls of tools
    *begin_out = text.begin;
    return text.end > 0 ? MICS_OK
                        : cannot_tell(r, i,
                                      "it writes what stands before it otherwise once it is "
                                      "there");
}

// How much of what closes a message where it is the last closes it in the whole, too; no special
// token is cut.
static size_t shared_closing(const rendering *r, size_t at, slice closing)
{
    const mics_tokenizer *tokenizer = r->chats->spec.tokenizer;
    const char *whole = r->whole.data;
    size_t shared = 0, end = at;
    while (shared < closing.bytes && at + shared < r->whole.bytes &&
           whole[at + shared] == closing.at[shared])
        shared++;
    for (;;) {
        const int32_t token =
            mics_tokenizer_next_special(tokenizer, whole, r->whole.bytes, at + shared, &end);
        if (token < 0)
            return shared;
        if (end > at + shared)
            return end - tokenizer->ops->text(tokenizer, token, false, NULL) - at;
    }
}

// Of a message that has tool calls and no text. As the last message, in r->with, it may begin with
// empty reasoning, which the whole text leaves out. Returns where it ends in the whole text: the longest
// suffix of r->with that the whole text has at `begin` ends there; 0: there is none with the call's name.
static size_t find_calls_end(const rendering *r, int32_t i, size_t begin)
{
    const mics_json_value *call =
        mics_json_element(mics_json_get(mics_json_element(r->chat->messages, i), "tool_calls"), 0);
    const mics_json_value *function = mics_json_get(call, "function");
    const char *name = mics_json_string(mics_json_get(function != NULL ? function : call, "name"));
    const slice last = {r->with.data, r->with.bytes};
    if (name == NULL || *name == '\0' || last.at == NULL ||
        !is_at(&r->whole, 0, (slice){last.at, begin}))
        return 0;
    for (size_t at = begin; at < last.bytes; at++) {
        const slice end = {last.at + at, last.bytes - at};
        if (is_at(&r->whole, begin, end))
            return memmem(end.at, end.bytes, name, strlen(name)) != NULL ? begin + end.bytes : 0;
    }
    return 0;
}

static mics_status find_end(rendering *r, int32_t i, size_t begin, size_t *end_out)
{
    mics_chat_span text;
    *end_out = r->whole.bytes;
    if (i + 1 == mics_json_count(r->chat->messages))
        return MICS_OK;
    MICS_TRY(render(r, i + 1, false, &r->with, NULL));
    *end_out = r->with.bytes;
    if (begins_with(&r->whole, &r->with) && r->with.bytes >= begin)
        return MICS_OK;
    MICS_TRY(locate(r, i, &text));
    MICS_TRY(render(r, i + 1, false, &r->with, NULL));
    const slice said = {r->whole.data + text.begin, text.end - text.begin};
    const char *in_part = said.bytes > 0 ? find_last(&r->with, said) : NULL;
    if (in_part != NULL && text.begin >= begin) {
        const char *closing = in_part + said.bytes, *end = r->with.data + r->with.bytes;
        const size_t closes = (size_t)(end - closing);
        const size_t shared = shared_closing(r, text.end, (slice){closing, closes});
        *end_out = text.end + shared;
        if (shared > 0 || closes == 0)
            return MICS_OK;
    }
    *end_out = begin < r->with.bytes ? find_calls_end(r, i, begin) : 0;
    if (text.end == 0 && *end_out > 0)
        return MICS_OK;
    return cannot_tell(r, i, "it writes this message otherwise once others follow");
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

static bool has_weight(const mics_chat *chat)
{
    bool found = false;
    for (int32_t i = 0; !found && i < mics_json_count(chat->messages); i++)
        found = is_assistant(chat, i) &&
                mics_json_type_of(mics_json_get(mics_json_element(chat->messages, i), "weight")) !=
                    MICS_JSON_NULL;
    return found;
}

static mics_status span_messages(rendering *r, mics_chat_text *text)
{
    const int32_t last = last_assistant(r->chat);
    for (int32_t i = r->chats->spec.loss_on == MICS_LOSS_LAST ? last : 0; i >= 0 && i <= last;
         i++) {
        size_t begin = 0, end = 0;
        bool counts = false;
        if (!is_assistant(r->chat, i))
            continue;
        MICS_TRY(mics_chat_read_weight(r->name, r->chat->messages, i, &counts));
        if (!counts)
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
        MICS_TRY(render(r, last, true, &r->before, NULL));
        from = begins_with(&r->whole, &r->before) ? r->before.bytes
                                                  : r->generated.list[r->generated.count - 1].begin;
    }
    for (size_t i = 0; i < r->generated.count; i++) {
        if (r->generated.list[i].end > from)
            MICS_TRY(mics_chat_text_add_span(text, r->generated.list[i].begin,
                                             r->generated.list[i].end));
    }
    return MICS_OK;
}

// ---- all ----

static mics_status find_spans(rendering *r, mics_chat_text *text)
{
    const bool completes = r->chat->counted_from >= 0;
    const bool all = r->chats->spec.loss_on == MICS_LOSS_ALL;
    if (all || completes)
        MICS_TRY(mics_chat_check_whole(r->name, r->chat->messages,
                                       completes ? r->chat->counted_from : 0));
    if (all && !(completes && r->chats->spec.completions))
        return mics_chat_text_add_span(text, 0, r->whole.bytes);
    if (completes) {
        MICS_TRY(render(r, r->chat->counted_from, true, &r->before, NULL));
        if (!begins_with(&r->whole, &r->before))
            return cannot_tell(r, r->chat->counted_from,
                               "it writes the prompt otherwise once the completion is there");
        return mics_chat_text_add_span(text, r->before.bytes, r->whole.bytes);
    }
    return mics_template_has_generation(template_of(r)) && !has_weight(r->chat)
               ? span_generated(r, text)
               : span_messages(r, text);
}

mics_status mics_chat_write(const mics_chats *chats, const char *name, const mics_chat *chat,
                            int32_t messages, bool prompt, mics_buffer *out)
{
    const rendering r = {.chats = chats, .chat = chat, .name = name};
    return render(&r, messages, prompt, out, NULL);
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
    mics_status status = render(&r, mics_json_count(chat->messages), false, &r.whole, &r.generated);
    if (status == MICS_OK)
        status = find_spans(&r, text_out);
    text_out->text = r.whole;
    mics_buffer_fini(&r.before);
    mics_buffer_fini(&r.with);
    mics_template_spans_fini(&r.generated);
    return status;
}
