// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// --model, --data, --text-field and --tokenizer: what a file of another system leaves to its program.
#ifndef MICS_CLI_SOURCE_H
#define MICS_CLI_SOURCE_H

#include "args.h"
#include "mics/memory.h"
#include "mics/status.h"

typedef struct cli_source {
    const char *model, *text_field, *tokenizer;
    cli_list data;
} cli_source;

// Rows of a table of options; `type` is the structure of the verb's, with a `source`.
#define CLI_SOURCE_ROW(name, kind, value, help, type, member)                                      \
    {                                                                                              \
        name, kind, value, help, offsetof(type, source.member), 0, 0                               \
    }
#define CLI_SOURCE_OPTIONS(type)                                                                   \
    CLI_SOURCE_ROW("model", CLI_TEXT, "CONFIG|FOLDER",                                             \
                   "model.config: a config.json or its folder", type, model),                      \
        CLI_SOURCE_ROW("data", CLI_MANY, "FILE...", "data.train: texts, globs or token shards",    \
                       type, data),                                                                \
        CLI_SOURCE_ROW("text-field", CLI_TEXT, "NAME",                                             \
                       "data.text_field: field of JSON Lines that holds the text", type,           \
                       text_field),                                                                \
        CLI_SOURCE_ROW("tokenizer", CLI_TEXT, "FILE|FOLDER",                                       \
                       "data.tokenizer: a tokenizer.json, a vocab.txt, or its folder", type,       \
                       tokenizer)

// The user's own sets, and behind them those of the flags.
typedef struct cli_sets {
    const char **items;
    int32_t count;
    mics_memory *memory;
    char *made[5]; // texts of the flags, and of --out
    int32_t made_count;
    char steps[48]; // the same of --steps
} cli_sets;

/* Joins them, with space for `more` at the end.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 * Owns:    cli_sets_fini, also after a failure.
 */
mics_status cli_sets_init(cli_sets *sets, mics_memory *memory, const cli_list *own,
                          const cli_source *source, int32_t more);
/* Adds a flag's text as the value of a key, in the space of one more; NULL: it is not given. Returns:
 * as cli_sets_init. */
mics_status cli_sets_text(cli_sets *sets, const char *key, const char *said);
/* Adds --steps, in the space of one more; 0: it is not given. Needs: `sets` stays where it is. */
void cli_sets_steps(cli_sets *sets, int64_t steps);
void cli_sets_fini(cli_sets *sets);

#endif
