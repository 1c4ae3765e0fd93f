// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A row with two answers to one prompt, as two samples: each is the prompt's tokens, and an answer's,
// which count. Tokens are those of TRL's DPOTrainer: prompt and answer are encoded together, and an
// answer begins where the tokens are no longer those of the prompt alone, in either of the two.
// Source: trl/trainer/dpo_trainer.py and trl/data_utils.py (extract_prompt) of TRL 1.16.
#include "io/data/chats/chat.h"
#include "mics/log.h"
#include <string.h>

enum { CHOSEN, REJECTED, ANSWERS, PROMPT = ANSWERS, TEXTS };

static const mics_chat_field fields[TEXTS] = {MICS_FIELD_CHOSEN, MICS_FIELD_REJECTED,
                                              MICS_FIELD_PROMPT};

typedef struct pair {
    const mics_chats *chats;
    mics_encoder *encoder;
    const char *name;
    const mics_json_value *row;
    mics_token_list tokens[TEXTS]; // of the prompt alone, and with each answer
    mics_buffer text;
} pair;

static const char *name_of(const pair *p, int text)
{
    return mics_chat_name(&p->chats->spec, fields[text]);
}

// Tokens of p->text.
static mics_status encode(pair *p, mics_token_frame frame, mics_token_list *list)
{
    size_t consumed = 0;
    MICS_TRY(mics_token_list_append(list, frame.before, frame.before_count));
    MICS_TRY(mics_encoder_reset(p->encoder));
    MICS_TRY(mics_encoder_feed(p->encoder, p->text.data, p->text.bytes, false, list, &consumed));
    return mics_token_list_append(list, frame.after, frame.after_count);
}

// ---- messages ----

// Messages of the prompt: those that both begin with where the row has none, but not all of one.
static mics_status find_prompt(const pair *p, const mics_chat chats[ANSWERS], int32_t *prompt_out)
{
    const mics_json_value *const of[] = {chats[CHOSEN].messages, chats[REJECTED].messages};
    const int32_t count[] = {mics_json_count(of[CHOSEN]), mics_json_count(of[REJECTED])};
    const int32_t most = (count[CHOSEN] < count[REJECTED] ? count[CHOSEN] : count[REJECTED]) - 1;
    const bool told = chats[CHOSEN].counted_from >= 0;
    int32_t same = told ? chats[CHOSEN].counted_from : 0;
    while (!told && same < most &&
           mics_json_is_same(mics_json_element(of[CHOSEN], same),
                             mics_json_element(of[REJECTED], same)))
        same++;
    *prompt_out = same;
    if (told && same <= most &&
        mics_json_is_same(mics_json_element(of[CHOSEN], same), mics_json_element(of[CHOSEN], 0)))
        return mics_fail(MICS_ERR_INVALID,
                         "%s: \"%s\" begins with the prompt's messages again; leave \"%s\" out, or "
                         "these",
                         p->name, name_of(p, CHOSEN), name_of(p, PROMPT));
    if (same > 0 && same <= most)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: \"%s\" and \"%s\" answer no common messages; write these as an array in "
                     "\"%s\", or begin both with them",
                     p->name, name_of(p, CHOSEN), name_of(p, REJECTED), name_of(p, PROMPT));
}

static mics_status encode_messages(pair *p, mics_shard_notes *notes)
{
    mics_chat chats[ANSWERS] = {{0}};
    int32_t prompt = 0;
    mics_status status = MICS_OK;
    for (int a = 0; a < ANSWERS; a++)
        MICS_TRY_OUT(mics_chat_read_answer(p->chats, p->name, p->row, fields[a], &chats[a]));
    MICS_TRY_OUT(find_prompt(p, chats, &prompt));
    for (int a = 0; a < ANSWERS; a++)
        MICS_TRY_OUT(mics_chat_check_whole(p->name, chats[a].messages, prompt));
    for (int a = TEXTS - 1; a >= 0; a--) { // the prompt is rendered by either
        const mics_chat *chat = &chats[a % ANSWERS];
        const int32_t count = a == PROMPT ? prompt : mics_json_count(chat->messages);
        MICS_TRY_OUT(mics_chat_write(p->chats, p->name, chat, count, a == PROMPT, &p->text));
        MICS_TRY_OUT(encode(p, (mics_token_frame){0}, &p->tokens[a]));
        for (int32_t i = a == PROMPT ? 0 : prompt; i < count; i++) {
            const mics_json_value *message = mics_json_element(chat->messages, i);
            mics_chat_note_specials(p->chats, mics_json_string(mics_json_get(message, "content")),
                                    notes);
            notes->empty += a != PROMPT && mics_chat_is_empty(message);
        }
    }
    notes->lossy += mics_chat_is_lossy(p->chats, &chats[CHOSEN], &p->text);
out:
    for (int a = 0; a < ANSWERS; a++)
        mics_chat_fini(&chats[a]);
    return status;
}

// ---- texts ----

// Bytes that both texts begin with, in whole characters, but the last one of either, and no space before
// they part.
static size_t common_bytes(const char *chosen, const char *rejected)
{
    size_t same = 0;
    while (chosen[same] != '\0' && chosen[same] == rejected[same])
        same++;
    const bool parted = chosen[same] != '\0' && rejected[same] != '\0';
    same -= !parted && same > 0;
    while (same > 0 && ((chosen[same] & 0xC0) == 0x80 || (rejected[same] & 0xC0) == 0x80))
        same--;
    return parted && same > 0 && chosen[same - 1] == ' ' ? same - 1 : same;
}

// A text ends with the end token's, as TRL has it; where that has no name the token follows.
static mics_status append_answer(pair *p, const char *answer)
{
    const char *end = p->chats->strings[MICS_CHAT_EOS].text;
    const size_t bytes = strlen(answer), tail = end != NULL ? strlen(end) : 0;
    MICS_TRY(mics_buffer_append(&p->text, answer, bytes));
    if (end == NULL || (bytes >= tail && memcmp(answer + bytes - tail, end, tail) == 0))
        return MICS_OK;
    return mics_buffer_append(&p->text, end, tail);
}

static mics_status encode_texts(pair *p, const char *const texts[TEXTS], mics_shard_notes *notes)
{
    mics_token_frame frame = {0};
    const char *system = mics_json_string(mics_json_get(p->row, "system"));
    const int32_t end = p->chats->end_token;
    const size_t skipped = texts[PROMPT] == NULL ? common_bytes(texts[CHOSEN], texts[REJECTED]) : 0;
    const char *prompt = texts[PROMPT] != NULL ? texts[PROMPT] : texts[CHOSEN];
    const size_t bytes = texts[PROMPT] != NULL ? strlen(prompt) : skipped;
    MICS_TRY(mics_tokenizer_frame(p->chats->spec.tokenizer, &frame));
    for (int a = 0; a < TEXTS; a++) {
        p->text.bytes = 0;
        MICS_TRY(mics_buffer_append(&p->text, prompt, bytes));
        if (a != PROMPT)
            MICS_TRY(append_answer(p, texts[a] + skipped));
        MICS_TRY(encode(p, frame, &p->tokens[a]));
        if (a != PROMPT && p->chats->strings[MICS_CHAT_EOS].text == NULL && end >= 0)
            MICS_TRY(mics_token_list_append(&p->tokens[a], &end, 1));
        mics_chat_note_specials(p->chats, texts[a], notes);
        notes->empty += a != PROMPT && mics_chat_is_blank(texts[a]);
    }
    notes->lossy += system != NULL && system[0] != '\0';
    return MICS_OK;
}

// ---- a pair ----

static int64_t common_tokens(const mics_token_list *a, const mics_token_list *b)
{
    int64_t same = 0;
    while (same < a->count && same < b->count && a->tokens[same] == b->tokens[same])
        same++;
    return same;
}

static mics_status write_samples(const pair *p, mics_token_list *list, mics_shard_notes *notes)
{
    const mics_token_list *of = p->tokens;
    const int64_t chosen = common_tokens(&of[PROMPT], &of[CHOSEN]);
    const int64_t rejected = common_tokens(&of[PROMPT], &of[REJECTED]);
    const int64_t begin = chosen < rejected ? chosen : rejected;
    if (begin == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: no token stands before the answers, of which the first has no "
                         "probability then; give a \"%s\"",
                         p->name, name_of(p, PROMPT));
    for (int a = 0; a < ANSWERS; a++) {
        if (of[a].count == begin)
            return mics_fail(MICS_ERR_INVALID, "%s: \"%s\" adds no token to the prompt", p->name,
                             name_of(p, a));
        for (int64_t t = 0; t < of[a].count; t++) {
            const int32_t token = of[a].tokens[t] << MICS_SAMPLE_SHIFT |
                                  (t == 0 ? MICS_SAMPLE_BEGINS : 0) |
                                  (t >= begin ? MICS_SAMPLE_COUNTS : 0);
            MICS_TRY(mics_token_list_append(list, &token, 1));
        }
    }
    notes->references += mics_chat_has_references(p->row);
    notes->parted += begin < of[PROMPT].count;
    notes->same += of[CHOSEN].count == of[REJECTED].count &&
                   common_tokens(&of[CHOSEN], &of[REJECTED]) == of[CHOSEN].count;
    return MICS_OK;
}

static mics_status encode_row(pair *p, mics_shard_notes *notes)
{
    const char *texts[TEXTS];
    mics_json_type types[TEXTS];
    if (mics_chats_kind(&p->chats->spec, p->row) != MICS_CHAT_ANSWERS)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: has no \"%s\" and \"%s\", as rows of pairs must; data.fields names "
                         "fields that are called otherwise",
                         p->name, name_of(p, CHOSEN), name_of(p, REJECTED));
    for (int a = 0; a < TEXTS; a++) {
        const mics_json_value *value = mics_chat_get(&p->chats->spec, p->row, fields[a]);
        texts[a] = mics_json_string(value);
        types[a] = mics_json_type_of(value);
    }
    const mics_json_type kind = types[CHOSEN];
    if (kind == MICS_JSON_ARRAY && types[REJECTED] == kind)
        return encode_messages(p, notes);
    if (kind == MICS_JSON_STRING && types[REJECTED] == kind &&
        (types[PROMPT] == kind || types[PROMPT] == MICS_JSON_NULL))
        return encode_texts(p, texts, notes);
    return mics_fail(MICS_ERR_INVALID,
                     "%s: \"%s\" and \"%s\" are neither two texts nor two arrays of messages, with "
                     "a \"%s\" of their kind or none",
                     p->name, name_of(p, CHOSEN), name_of(p, REJECTED), name_of(p, PROMPT));
}

mics_status mics_chat_encode_pair(const mics_chats *chats, mics_encoder *encoder, const char *name,
                                  const mics_json_value *row, mics_token_list *list,
                                  mics_shard_notes *notes)
{
    pair p = {.chats = chats, .encoder = encoder, .name = name, .row = row};
    p.text.memory = chats->memory;
    for (int a = 0; a < TEXTS; a++)
        p.tokens[a].memory = chats->memory;
    mics_status status = encode_row(&p, notes);
    if (status == MICS_OK)
        status = write_samples(&p, list, notes);
    mics_buffer_fini(&p.text);
    for (int a = 0; a < TEXTS; a++)
        mics_token_list_fini(&p.tokens[a]);
    return status;
}
