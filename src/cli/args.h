// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Command lines: long flags ("--flag value", "--flag=value"), then help made from the same table.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Texts from the command line, in order; borrowed from argv, listed while the verb runs.
typedef struct cli_list {
    const char **items;
    int32_t count;
} cli_list;

typedef enum cli_option_kind {
    CLI_FLAG,     // bool *
    CLI_INT,      // int64_t *
    CLI_COUNT,    // int32_t *
    CLI_REAL,     // double *
    CLI_LARGE,    // double *, and may end in K, M, B or T: thousands to millions of millions
    CLI_POSITIVE, // double *, above 0
    CLI_TEXT,     // const char **
    CLI_EACH,     // cli_list *: one text each time the flag is given
    CLI_MANY,     // cli_list *: all texts up to the next flag
    // The value of a key of the run file: a set in call->sets, behind those of --set.
    CLI_SET, // the set itself: "a.b=v"
    CLI_KEY_INT,
    CLI_KEY_TEXT,
    CLI_KEY_TEXTS, // all texts up to the next flag
    CLI_KEY_FLAG
} cli_option_kind;

typedef struct cli_option {
    const char *name; // without the dashes
    cli_option_kind kind;
    const char *value; // its placeholder in help: "N"
    const char *help;
    size_t at;   // where in the verb's options its value is; else left alone
    int64_t min; // of CLI_INT, CLI_COUNT, CLI_KEY_INT and CLI_REAL
    int64_t max; // of numbers; 0: none
} cli_option;

typedef struct cli_call cli_call;
typedef struct cli_verb cli_verb;

// What the program can be asked to do.
struct cli_verb {
    const char *name;      // "plan"; "bench comm" of a part
    const char *summary;   // in the list of verbs
    const char *arguments; // "RUN.json"; "" for none
    const char *about;     // sentences; may hold newlines
    const cli_option *options;
    int32_t option_count;
    int32_t min_arguments, max_arguments;
    bool model_stands; // --model's value stands for a missing argument
    // Returns: MICS_OK, or what failed, logged.
    mics_status (*run)(cli_call *call);
    const char *notes;            // (optional) after the flags
    const cli_verb *const *parts; // (optional) verbs of two words, the last NULL
    // (optional) What a signal that ends the verb means: "nothing was written"; "" needs no word.
    // With it a file is whole or not there; without, signals end the process as they always do.
    const char *stopped;
};

#define CLI_OPTIONS(table) .options = table, .option_count = sizeof table / sizeof table[0]

// Rows that tables of several verbs have; `type` is the structure of the verb's options.
#define CLI_ROW(name, kind, value, help, where)                                                    \
    {                                                                                              \
        name, kind, value, help, where, 0, 0                                                       \
    }
#define CELL_JSON(type)                                                                            \
    CLI_ROW("json", CLI_FLAG, NULL, "print one JSON object", offsetof(type, json))
#define CLI_SETS CLI_ROW("set", CLI_SET, "a.b=v", "set one key of the run file; may be repeated", 0)
// What a file of another system leaves to its program.
#define CLI_SOURCE                                                                                 \
    CLI_ROW("model", CLI_KEY_TEXT, "CONFIG|FOLDER", "model.config: a config.json or its folder",   \
            0),                                                                                    \
        CLI_ROW("data", CLI_KEY_TEXTS, "FILE...", "data.train: texts, globs or token shards", 0),  \
        CLI_ROW("text-field", CLI_KEY_TEXT, "NAME",                                                \
                "data.text_field: field of JSON Lines, or column of a table, that holds the "      \
                "text",                                                                            \
                0),                                                                                \
        CLI_ROW("special-tokens", CLI_KEY_FLAG, NULL,                                              \
                "data.special_tokens: those that the texts name are taken as such, not as text",   \
                0),                                                                                \
        CLI_ROW("tokenizer", CLI_KEY_TEXT, "FILE|FOLDER",                                          \
                "data.tokenizer: a tokenizer.json, a vocab.txt, or its folder", 0)

// What trains an adapter.
#define CLI_ADAPTER                                                                                \
    {"lora",                                                                                       \
     CLI_KEY_INT,                                                                                  \
     "R",                                                                                          \
     "adapter.r: train an adapter of rank R on all linears, lora_alpha 2 x R, and freeze the "     \
     "model",                                                                                      \
     0,                                                                                            \
     1,                                                                                            \
     0},                                                                                           \
        CLI_ROW("adapter", CLI_KEY_TEXT, "FOLDER",                                                 \
                "adapter.init: train the adapter of a folder of PEFT's further", 0)

// What an adapter stands on.
#define CLI_BASE(where)                                                                            \
    CLI_ROW("base", CLI_TEXT, "FOLDER",                                                            \
            "of an adapter: the model's folder; default: the one that it names", where)
#define CLI_ON_ADAPTER(where)                                                                      \
    CLI_ROW("adapter", CLI_TEXT, "FOLDER",                                                         \
            "with an adapter on it: PEFT's folder, or a checkpoint that trained one", where)

enum { CLI_MAX_OPTIONS = 64, CLI_MAX_OWNED = 2 * CLI_MAX_OPTIONS + 2 };

// One call of a verb.
struct cli_call {
    const cli_verb *verb;
    mics_memory *memory;
    int argc; // behind the verb
    char **argv;
    cli_list arguments;           // those without a flag; by cli_parse
    cli_list sets;                // of the run file's keys; by cli_parse
    uint64_t given;               // bit i: the verb's option i was; by cli_parse
    const cli_verb *const *verbs; // all of the program's; the last is NULL
    bool running;                 // set by the verb: from now on a failure is the running system's
    void *owned[CLI_MAX_OWNED];   // lists and sets of cli_parse, freed by main
    int32_t owned_count;
};

/* Whether the command line asks for help. */
bool cli_asks_help(const cli_call *call);

void cli_print_help(const cli_verb *verb);

/* Reads the command line into the verb's `options`, a structure that its table of options is of, and
 * into call->arguments.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged; MICS_ERR_MEMORY.
 */
mics_status cli_parse(cli_call *call, void *options);

/* The name that is meant by a mistyped one: the nearest by letters, else one that begins with it or
 * like it; NULL when there is none.
 */
const char *cli_nearest(const char *name, const char *const *names, int32_t count);
