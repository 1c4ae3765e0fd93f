// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From a row of fine-tuning data to tokens, of which some count: their prediction is trained.
//
// Rows are chats ("messages", or "conversations" with from and value), "prompt" and "completion", or
// Alpaca's "instruction", "input" and "output". Chats become text by a chat template, as
// transformers' apply_chat_template has it. With an objective of pairs they have "chosen" and
// "rejected" instead, and each becomes two samples.
#pragma once

#include "base/json.h"
#include "io/data/data.h"

// Names of fields in data.fields; the first that a row has says what it is.
typedef enum mics_chat_field {
    MICS_FIELD_MESSAGES,
    MICS_FIELD_CONVERSATIONS,
    MICS_FIELD_PROMPT,
    MICS_FIELD_COMPLETION,
    MICS_FIELD_CHOSEN,
    MICS_FIELD_REJECTED,
    MICS_FIELD_INSTRUCTION,
    MICS_FIELD_INPUT,
    MICS_FIELD_OUTPUT,
    MICS_FIELD_TOOLS,
    MICS_FIELD_ROLE, // of a message
    MICS_FIELD_CONTENT,
    MICS_FIELDS
} mics_chat_field;

/* The name that a field has unless data.fields gives another.     Returns: never NULL. */
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
    bool pairs;       // rows are pairs of answers, and of each its own tokens count
} mics_chats_spec;

/* Opens what rows become tokens by.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (a template that is not there, or not known);
 *          MICS_ERR_FORMAT, MICS_ERR_UNSUPPORTED (a file, or a construct of a template, by line);
 *          MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    close with mics_chats_close. */
mics_status mics_chats_open(mics_memory *memory, const mics_chats_spec *spec,
                            mics_chats **chats_out);
void mics_chats_close(mics_chats *chats);

/* Where the template is from: "tokenizer_config.json", "chatml", a path.
 *
 * Returns: NULL: there is none. */
const char *mics_chats_template_from(const mics_chats *chats);

/* The text of the template that data.chat_template names.
 *
 * Needs:   `chats` may be NULL.     Returns: NULL: it names none. */
const char *mics_chats_template_asked(const mics_chats *chats);

// Fields that a row may have, and NULL behind them.
typedef struct mics_chat_columns {
    const char *names[MICS_FIELDS + 12];
} mics_chat_columns;

mics_chat_columns mics_chats_columns(const mics_chats_spec *spec);

typedef enum mics_chat_kind {
    MICS_CHAT_NONE, // a text
    MICS_CHAT_MESSAGES,
    MICS_CHAT_PAIR, // prompt and completion
    MICS_CHAT_ALPACA,
    MICS_CHAT_ANSWERS // chosen and rejected
} mics_chat_kind;

/* What a row is, by the fields that it has.     Returns: the first kind that fits, of pairs the last one
 * where it does. */
mics_chat_kind mics_chats_kind(const mics_chats_spec *spec, const mics_json_value *row);

/* A row's tokens, with their flags; of a pair those of both answers, the chosen one first, each behind
 * the prompt.
 *
 * name: of file and line, for errors.
 * Shapes:  tokens_out: (count_out).
 * Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_FORMAT: what is wrong with the row, and what would
 *          work; MICS_ERR_MEMORY.
 * Owns:    the caller frees *tokens_out with mics_free.     Threads: any. */
mics_status mics_chats_tokens(const mics_chats *chats, const char *name, const mics_json_value *row,
                              int32_t **tokens_out, int64_t *count_out);

// ---- rows as they stand ----

// A row of a file.
typedef struct mics_row {
    const char *name; // "PATH, line N"
    const mics_json_value *value;
    bool last; // set by whoever is given it: no more are wanted
} mics_row;

typedef struct mics_rows_spec { // borrowed
    const char *const *patterns;
    int32_t count;
    const char *const *columns; // of Parquet, as in mics_parquet_source
    int64_t skip_bad_lines;     // so many bad rows, of `take` too, are warnings
} mics_rows_spec;

/* Gives the rows of JSON Lines, JSON arrays and Parquet, file by file; others are passed over.
 *
 * Returns: MICS_OK; MICS_ERR_IO, MICS_ERR_FORMAT, MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED: a file;
 *          MICS_ERR_MEMORY; or what `take` returned, if not MICS_OK. */
mics_status mics_rows_walk(mics_memory *memory, const mics_rows_spec *spec,
                           mics_status (*take)(void *ctx, mics_row *row), void *ctx);
