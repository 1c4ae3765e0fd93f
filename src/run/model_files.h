// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The files of a model's folder that say how its tokens are used: chat template, special tokens,
// generation_config.json. Checkpoints keep them as one JSON object, texts by their names, and exports
// write them again.
#pragma once

#include "base/json.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>

// The folder of chat templates with names of their own.
#define RUN_MODEL_TEMPLATES "additional_chat_templates"

// Where they are from.
typedef struct run_model_folders {
    const char *tokens;  // the tokenizer's; NULL: none
    const char *weights; // of generation_config.json; NULL: none
    const char
        *chat_template; // text that stands for chat_template.jinja; NULL: the tokenizer's has it
    bool vocabulary;    // tokenizer.json is one of them
} run_model_folders;

/* Reads them. Those that are no text or too large, 16 MiB in all, are a warning; with `tells`, of a
 * run, also damaged ones, and the others are named in one line.
 *
 * Returns: MICS_OK, with *text_out NULL where there are none; MICS_ERR_MEMORY.
 * Owns:    mics_free *text_out.
 */
mics_status run_model_files_read(mics_memory *memory, const run_model_folders *from, bool tells,
                                 char **text_out);

/* As what was read, with another chat_template.jinja, as a later phase has. `name`: for errors.
 *
 * Returns: as run_model_files_parse.     Owns: mics_free *text_out. */
mics_status run_model_files_change(mics_memory *memory, const char *name, const char *text,
                                   const char *jinja, char **text_out);

/* Parses and checks what was read; `name` stands for it in errors, and NULL for none. Returns: as
 * mics_json_parse; MICS_ERR_FORMAT: another thing than texts by such names. */
mics_status run_model_files_parse(mics_memory *memory, const char *name, const char *text,
                                  mics_json **files_out);

/* The text of a file; NULL where there is none. */
const char *run_model_files_find(const mics_json *files, const char *name);
