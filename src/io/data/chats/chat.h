// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Between the files of this folder, and for tokenize.c: row -> messages (rows.c) -> text and what
// counts of it (render.c) -> tokens (tokens.c).
#pragma once

#include "io/data/buffer.h"
#include "io/data/chats.h"
#include "io/data/chats/template/template.h"
#include "io/data/shard.h"
#include "io/data/tokenizer/tokenizer.h"

/* As mics_chats_tokens, appended. Adds to what `notes` say of rows. Threads: any, each with an encoder
 * that takes special tokens. */
mics_status mics_chats_encode(const mics_chats *chats, mics_encoder *encoder, const char *name,
                              const mics_json_value *row, mics_token_list *list,
                              mics_shard_notes *notes);

/* What the tokens of a row depend on besides row and tokenizer. */
uint64_t mics_chats_identity(const mics_chats *chats);

/* What they were opened by. */
const mics_chats_spec *mics_chats_spec_of(const mics_chats *chats);

// Bytes of a text that count.
typedef struct mics_chat_span {
    size_t begin, end;
} mics_chat_span;

// A row as text.
typedef struct mics_chat_text {
    mics_buffer text;
    mics_chat_span *spans; // ascending, apart
    int32_t count, capacity;
    bool framed; // it stands in the tokenizer's frame, and ends with the end token
} mics_chat_text;

/* Bytes [begin, end) count; nothing if there are none. Spans come in order. */
mics_status mics_chat_text_add_span(mics_chat_text *text, size_t begin, size_t end);
void mics_chat_text_fini(mics_chat_text *text);

/* Appends a text's tokens with their flags. Needs: an encoder that takes special tokens. */
mics_status mics_chat_text_encode(const mics_chats *chats, mics_encoder *encoder,
                                  const mics_chat_text *text, mics_token_list *list);

// A chat: its messages are a JSON array, each with role and content.
typedef struct mics_chat {
    const mics_json_value *messages, *tools;
    const mics_json_value *row; // for its other fields
    mics_json *own;             // the messages, where they were rewritten; mics_json_close
    mics_json *own_tools;
    mics_chat_field answer; // what stands behind a prompt: MICS_FIELD_COMPLETION, or one of a pair
    int32_t counted_from;   // message from which all counts (prompt and completion as messages); -1
} mics_chat;

/* Finds a row's messages, rewritten as {"role", "content"} where it has others. */
mics_status mics_chat_read(const mics_chats *chats, const char *name, const mics_json_value *row,
                           mics_chat *chat_out);
void mics_chat_fini(mics_chat *chat);

/* The same of one answer of a pair, behind its prompt. That has `counted_from` messages; -1: the row has
 * none as messages, and it is among the answer's. */
mics_status mics_chat_read_answer(const mics_chats *chats, const char *name,
                                  const mics_json_value *row, mics_chat_field answer,
                                  mics_chat *chat_out);

/* Refuses a row with pictures, films or sounds.
 *
 * Returns: MICS_ERR_INVALID, which names the field. */
mics_status mics_chat_check_media(const char *name, const mics_json_value *row);

/* Whether a chat's text does not say all that its row does: a system prompt beside its messages, tools
 * or calls of which the template knows nothing, parts of a message that it prints as Python would. */
bool mics_chat_is_lossy(const mics_chats *chats, const mics_chat *chat, const mics_buffer *text);

/* Whether a pair has log-probabilities that its answers have in a reference. */
bool mics_chat_has_references(const mics_json_value *row);

/* Whether a text is white space alone; not where there is none. */
bool mics_chat_is_blank(const char *text);

/* Whether a message is the assistant's and says nothing, and calls no tools. */
bool mics_chat_is_empty(const mics_json_value *message);

/* Renders a chat, and finds what counts. */
mics_status mics_chat_render(const mics_chats *chats, const char *name, const mics_chat *chat,
                             mics_chat_text *text_out);

/* A chat's text up to a message, and what stands before an answer if `prompt`. Needs: out->memory. */
mics_status mics_chat_write(const mics_chats *chats, const char *name, const mics_chat *chat,
                            int32_t messages, bool prompt, mics_buffer *out);

/* Of a message's text, or a row's: notes whether it names special tokens. */
void mics_chat_note_specials(const mics_chats *chats, const char *text, mics_shard_notes *notes);

/* mics_chats_encode of a pair. */
mics_status mics_chat_encode_pair(const mics_chats *chats, mics_encoder *encoder, const char *name,
                                  const mics_json_value *row, mics_token_list *list,
                                  mics_shard_notes *notes);

/* What a row has in a field; NULL: nothing, or null. And how that is called. */
const mics_json_value *mics_chat_get(const mics_chats_spec *spec, const mics_json_value *row,
                                     mics_chat_field field);
const char *mics_chat_name(const mics_chats_spec *spec, mics_chat_field field);

/* The weight of a message, as in OpenAI's and Mistral's files: *counts_out false where it is 0, read but
 * not learned. Returns: MICS_OK; MICS_ERR_INVALID, one line: it is neither 0 nor 1. */
mics_status mics_chat_read_weight(const char *name, const mics_json_value *messages, int32_t index,
                                  bool *counts_out);

/* Refuses messages from `from` on whose weight is not 1, as all of them counts. */
mics_status mics_chat_check_whole(const char *name, const mics_json_value *messages, int32_t from);

/* Refuses a row's own weight that is not 1. */
mics_status mics_chat_check_weight(const char *name, const mics_json_value *row);

/* Whether a row is a prompt and its completion as two texts, and no chat. */
bool mics_chat_pair(const mics_chats *chats, const mics_json_value *row, const char **prompt_out,
                    const char **completion_out);

enum { MICS_CHAT_STRINGS = 7, MICS_CHAT_EOS = 1 }; // special tokens that templates know by name

// What mics_chats_open found.
struct mics_chats {
    mics_memory *memory;
    mics_chats_spec spec;
    char *template_from, *asked; // asked: the template's text, where data.chat_template names it
    mics_template *template, *tool_template; // tool_template: for chats with tools; NULL: none
    bool dated, tools, calls;                // a template asks for the date, tools, calls of these
    mics_template_string strings[MICS_CHAT_STRINGS];
    mics_json *config, *map; // tokenizer_config.json, special_tokens_map.json; NULL: none
    bool *special;           // (vocab) tokens
    int32_t end_token;       // of prompt and completion; -1: none
    uint64_t identity;
};
