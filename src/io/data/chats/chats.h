// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From a row of fine-tuning data to tokens, of which some count: their prediction is trained.
//
// Rows are chats ("messages", or "conversations" with from and value), "prompt" and "completion", or
// Alpaca's "instruction", "input" and "output". Chats become text by a chat template, as
// transformers' apply_chat_template has it.
#pragma once

#include "base/json.h"
#include "io/data/buffer.h"
#include "io/data/chats/template/template.h"
#include "io/data/data.h"
#include "io/data/tokenizer/tokenizer.h"

// Names of fields in data.fields; the first that a row has says what it is.
typedef enum mics_chat_field {
    MICS_FIELD_MESSAGES,
    MICS_FIELD_CONVERSATIONS,
    MICS_FIELD_PROMPT,
    MICS_FIELD_COMPLETION,
    MICS_FIELD_INSTRUCTION,
    MICS_FIELD_INPUT,
    MICS_FIELD_OUTPUT,
    MICS_FIELD_TOOLS,
    MICS_FIELD_ROLE, // of a message
    MICS_FIELD_CONTENT,
    MICS_FIELDS
} mics_chat_field;

/* The name that a field has unless data.fields gives another. */
const char *mics_chat_field_text(mics_chat_field field);

// Which tokens count.
typedef enum mics_loss_on {
    MICS_LOSS_ASSISTANT, // the assistant's; of prompt and completion the completion
    MICS_LOSS_LAST,      // of these only the last message's
    MICS_LOSS_ALL
} mics_loss_on;

typedef struct mics_chats_spec {
    const mics_tokenizer *tokenizer; // borrowed
    const char *folder; // with tokenizer_config.json and chat_template.jinja; NULL: none
    // data.chat_template: a file, or "chatml", "llama3", "mistral", "alpaca"; NULL: the folder's.
    const char *chat_template;
    const mics_json_value *variables; // of the template, an object, borrowed; NULL: none
    const char *fields[MICS_FIELDS];  // names; NULL: as mics_chat_field_text; borrowed
    int64_t date_s;                   // since 1970, UTC: the template's strftime_now
    mics_loss_on loss_on;
    bool completions; // of a prompt and its completion this alone counts, whatever `loss_on` says
} mics_chats_spec;

/* Returns: MICS_OK; MICS_ERR_INVALID (a template that is not there, or not known);
 *          MICS_ERR_FORMAT, MICS_ERR_UNSUPPORTED (a file, or a construct of a template, by line);
 *          MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    mics_chats_close. */
mics_status mics_chats_open(mics_memory *memory, const mics_chats_spec *spec,
                            mics_chats **chats_out);
void mics_chats_close(mics_chats *chats);

/* What the tokens of a row depend on besides row and tokenizer. */
uint64_t mics_chats_identity(const mics_chats *chats);

/* Where the template is from: "tokenizer_config.json", "chatml", ...; NULL: there is none. */
const char *mics_chats_template_from(const mics_chats *chats);

/* Appends a row's tokens with their flags; nothing for a row without any.
 *
 * name: of file and line, for errors.
 * named_out: += messages whose own text names a special token, which is one then.
 * Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_FORMAT: what is wrong with the row, and what would
 *          work; MICS_ERR_MEMORY.     Threads: any, each with its own encoder. */
mics_status mics_chats_encode(const mics_chats *chats, mics_encoder *encoder, const char *name,
                              const mics_json_value *row, mics_token_list *list,
                              int64_t *named_out);

// Fields that a row may have, and NULL behind them.
typedef struct mics_chat_columns {
    const char *names[MICS_FIELDS + 3];
} mics_chat_columns;

mics_chat_columns mics_chats_columns(const mics_chats_spec *spec);

/* What they were opened by. */
const mics_chats_spec *mics_chats_spec_of(const mics_chats *chats);

typedef enum mics_chat_kind {
    MICS_ROW_TEXT, // none of the others
    MICS_ROW_CHAT, // messages, conversations
    MICS_ROW_PAIR, // prompt and completion
    MICS_ROW_ALPACA
} mics_chat_kind;

/* What a row is. */
mics_chat_kind mics_chats_kind(const mics_chats_spec *spec, const mics_json_value *row);

/* Whether a row is of these kinds, and not a text. */
bool mics_chats_are(const mics_chats_spec *spec, const mics_json_value *row);

// ---- between the files of this folder ----

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
    int32_t counted_from; // message from which all counts (prompt and completion as messages); -1
} mics_chat;

/* Finds a row's messages, rewritten as {"role", "content"} where it has others. */
mics_status mics_chat_read(const mics_chats *chats, const char *name, const mics_json_value *row,
                           mics_chat *chat_out);
void mics_chat_fini(mics_chat *chat);

/* Renders a chat, and finds what counts. */
mics_status mics_chat_render(const mics_chats *chats, const char *name, const mics_chat *chat,
                             mics_chat_text *text_out);

/* Whether a row is a prompt and its completion as two texts, and no chat. */
bool mics_chat_pair(const mics_chats *chats, const mics_json_value *row, const char **prompt_out,
                    const char **completion_out);

enum { MICS_CHAT_STRINGS = 7 }; // special tokens that templates know by name

// What mics_chats_open found.
struct mics_chats {
    mics_memory *memory;
    mics_chats_spec spec;
    char *template_from;
    mics_template *template, *tool_template; // tool_template: for chats with tools; NULL: none
    bool dated;                              // a template asks for the date
    mics_template_string strings[MICS_CHAT_STRINGS];
    mics_json *config, *map; // tokenizer_config.json, special_tokens_map.json; NULL: none
    bool *special;           // (vocab) tokens
    int32_t end_token;       // of prompt and completion; -1: none
    uint64_t identity;
};
