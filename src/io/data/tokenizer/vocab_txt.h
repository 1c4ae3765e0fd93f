// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// BERT's vocab.txt, which folders have that were made before tokenizer.json: a token a line, the
// rest in tokenizer_config.json and special_tokens_map.json beside it.
#pragma once

#include "base/json.h"

/* Whether a path is that of such a file, by its name. */
bool mics_vocab_txt_is(const char *path);

// What stands beside it; NULL: nothing.
typedef struct mics_vocab_txt_beside {
    const mics_json *settings; // tokenizer_config.json
    // special_tokens_map.json, whose tokens come first unless the settings have added_tokens_decoder
    const mics_json *specials;
} mics_vocab_txt_beside;

/* The tokenizer.json that says the same, as transformers' BertTokenizer makes it. Its lines are
 * those of the file.
 *
 * Shapes:  text: (bytes), a NUL behind them; changed.
 * Needs:   `name` stands for the file in errors.
 * Returns: MICS_OK; MICS_ERR_FORMAT, naming the line; MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED,
 *          naming the key; MICS_ERR_MEMORY.
 * Owns:    close with mics_json_close.
 */
mics_status mics_vocab_txt_parse(mics_memory *memory, const char *name, char *text, size_t bytes,
                                 const mics_vocab_txt_beside *beside, mics_json **json_out);

/* The same of files; an added_tokens.json beside them must be empty. */
mics_status mics_vocab_txt_load(mics_memory *memory, const char *path, size_t max_bytes,
                                mics_json **json_out);
