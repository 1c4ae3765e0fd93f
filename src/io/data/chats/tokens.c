// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From text and spans to tokens that count or not: a token counts that has a byte of a span.
//
// Where a span begins or ends in the tokens is found by encoding what stands before that place, from
// the last special token on, since a special token keeps what is on its two sides apart.
#include "base/free.h"
#include "io/data/chats/chat.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

mics_status mics_chat_text_add_span(mics_chat_text *text, size_t begin, size_t end)
{
    if (begin >= end)
        return MICS_OK;
    if (text->count > 0 && text->spans[text->count - 1].end >= begin) { // one that goes on
        text->spans[text->count - 1].end = end;
        return MICS_OK;
    }
    if (text->count == text->capacity) {
        const int32_t capacity = text->capacity == 0 ? 8 : 2 * text->capacity;
        void *block = text->spans;
        MICS_TRY(mics_realloc(text->text.memory, MICS_MEM_HOST,
                              (size_t)capacity * sizeof *text->spans, &block));
        text->spans = block;
        text->capacity = capacity;
    }
    text->spans[text->count++] = (mics_chat_span){begin, end};
    return MICS_OK;
}

void mics_chat_text_fini(mics_chat_text *text)
{
    mics_free(text->text.memory, text->spans);
    mics_buffer_fini(&text->text);
}

// ---- where a place in the text is among the tokens ----

// A special token that the text names, and that is one among the tokens.
typedef struct anchor {
    size_t begin; // in the text
    int64_t token;
} anchor;

typedef struct aligning {
    mics_encoder *encoder;
    const bool *special; // (vocab)
    const char *text;
    size_t bytes;
    const int32_t *tokens; // of the text
    int64_t count;
    size_t searched; // of the text
    anchor last;     // the last one before that
    bool lost;       // text and tokens name others: the last one is what is left
    mics_token_list part;
} aligning;

static int64_t next_special_token(const aligning *a, int64_t from)
{
    while (from < a->count && !a->special[a->tokens[from]])
        from++;
    return from;
}

// Goes on to the last special token that ends at or before a place.
static void pass_specials(aligning *a, size_t place, bool *any)
{
    const mics_tokenizer *tokenizer = a->encoder->tokenizer;
    while (!a->lost) {
        size_t end = a->searched;
        const int32_t token =
            mics_tokenizer_next_special(tokenizer, a->text, a->bytes, place, &end);
        if (token < 0 || end > place)
            return;
        const int64_t at = next_special_token(a, *any ? a->last.token + 1 : 0);
        a->lost = at == a->count || a->tokens[at] != token;
        a->searched = end;
        if (a->lost)
            return;
        a->last = (anchor){end - tokenizer->ops->text(tokenizer, token, false, NULL), at};
        *any = true;
    }
}

// How many tokens end at or before a place in the text, and how many begin before it. Where the text up to
// it has other tokens in the end, as many bytes of tokens are what is before it.
static mics_status find_place(aligning *a, size_t place, bool *any, int64_t *ended_out,
                              int64_t *begun_out)
{
    const mics_tokenizer *tokenizer = a->encoder->tokenizer;
    size_t consumed = 0, left = 0, bytes = 0;
    int64_t same = 0, at = 0;
    pass_specials(a, place, any);
    a->part.count = 0;
    MICS_TRY(mics_encoder_reset(a->encoder));
    MICS_TRY(mics_encoder_feed(a->encoder, a->text + a->last.begin, place - a->last.begin, false,
                               &a->part, &consumed));
    for (at = a->last.token; same < a->part.count && at < a->count; same++, at++) {
        if (a->part.tokens[same] != a->tokens[at])
            break;
    }
    for (; same < a->part.count; same++)
        left += tokenizer->ops->text(tokenizer, a->part.tokens[same], false, NULL);
    for (; left > 0 && at < a->count; at++, left -= bytes) {
        bytes = tokenizer->ops->text(tokenizer, a->tokens[at], false, NULL);
        if (bytes > left)
            break;
    }
    *ended_out = at;
    *begun_out = at + (left > 0);
    return MICS_OK;
}

// Flags the tokens that have bytes of a span. Places are ascending, so each is looked for once.
static mics_status flag_spans(aligning *a, const mics_chat_text *text, int32_t *flagged)
{
    bool any = false;
    for (int32_t s = 0; s < text->count; s++) {
        int64_t begin = 0, end = 0, unused = 0;
        MICS_TRY(find_place(a, text->spans[s].begin, &any, &begin, &unused));
        MICS_TRY(find_place(a, text->spans[s].end, &any, &unused, &end));
        for (int64_t t = begin; t < end && t < a->count; t++)
            flagged[t] |= MICS_SAMPLE_COUNTS;
    }
    return MICS_OK;
}

// ---- a text ----

void mics_chat_note_specials(const mics_chats *chats, const char *text, mics_shard_notes *notes)
{
    size_t at = 0, bytes = text != NULL ? strlen(text) : 0;
    notes->named += bytes > 0 && mics_tokenizer_next_special(chats->spec.tokenizer, text, bytes,
                                                             bytes, &at) >= 0;
}

// The end token behind a completion that does not have it.
static mics_status append_end(const mics_chats *chats, mics_token_list *list, int64_t first)
{
    const bool there = chats->end_token < 0 ||
                       (list->count > first && list->tokens[list->count - 1] == chats->end_token);
    return there ? MICS_OK : mics_token_list_append(list, &chats->end_token, 1);
}

mics_status mics_chat_text_encode(const mics_chats *chats, mics_encoder *encoder,
                                  const mics_chat_text *text, mics_token_list *list)
{
    const int64_t first = list->count;
    mics_token_frame frame = {0};
    mics_token_list flags = {.memory = chats->memory};
    size_t consumed = 0;
    mics_status status = MICS_OK;
    if (text->framed)
        MICS_TRY(mics_tokenizer_frame(chats->spec.tokenizer, &frame));
    MICS_TRY(mics_token_list_append(list, frame.before, frame.before_count));
    MICS_TRY(mics_encoder_reset(encoder));
    MICS_TRY(mics_encoder_feed(encoder, text->text.data, text->text.bytes, false, list, &consumed));
    const int64_t body = first + frame.before_count, end = list->count;
    if (text->framed)
        MICS_TRY(append_end(chats, list, body));
    aligning a = {.encoder = encoder,
                  .special = chats->special,
                  .text = text->text.data,
                  .bytes = text->text.bytes,
                  .tokens = list->tokens + body,
                  .count = end - body,
                  .part.memory = chats->memory};
    MICS_TRY_OUT(mics_token_list_append(&flags, list->tokens + first, list->count - first));
    for (int64_t t = 0; t < flags.count; t++)
        flags.tokens[t] = 0;
    MICS_TRY_OUT(flag_spans(&a, text, flags.tokens + frame.before_count));
    for (int64_t t = end - first; t < flags.count; t++)
        flags.tokens[t] = MICS_SAMPLE_COUNTS; // the end that was put there
    for (int64_t t = 0; t < flags.count; t++)
        list->tokens[first + t] = list->tokens[first + t] << MICS_SAMPLE_SHIFT | flags.tokens[t] |
                                  (t == 0 ? MICS_SAMPLE_BEGINS : 0);
out:
    mics_token_list_fini(&a.part);
    mics_token_list_fini(&flags);
    return status;
}
