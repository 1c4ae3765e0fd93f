// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Command lines: long flags ("--flag value", "--flag=value"), then help made from the same table.
#ifndef MICS_CLI_ARGS_H
#define MICS_CLI_ARGS_H

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// Texts from the command line, in order; borrowed from argv, listed while the verb runs.
typedef struct cli_list {
    const char **items;
    int32_t count;
} cli_list;

typedef enum cli_option_kind {
    CLI_FLAG,     // bool *
    CLI_INT,      // int64_t *
    CLI_REAL,     // double *
    CLI_POSITIVE, // double *, above 0
    CLI_TEXT,     // const char **
    CLI_EACH,     // cli_list *: one text each time the flag is given
    CLI_MANY      // cli_list *: all texts up to the next flag
} cli_option_kind;

typedef struct cli_option {
    const char *name; // without the dashes
    cli_option_kind kind;
    const char *value; // its placeholder in help: "N"
    const char *help;
    void *target; // set when the flag is given, else left alone
    int64_t min;  // of CLI_INT and CLI_REAL
    int64_t max;  // of numbers; 0: none
} cli_option;

typedef struct cli_spec {
    const char *verb;
    const char *arguments; // "RUN.json"; "" for none
    const char *about;     // sentences; may hold newlines
    const cli_option *options;
    int32_t option_count;
    int32_t min_arguments, max_arguments;
    const char *notes; // (optional) after the flags
} cli_spec;

enum { CLI_MAX_LISTS = 4 };

typedef struct cli_verb_entry cli_verb_entry; // cli.h

// One call of a verb.
typedef struct cli_call {
    mics_memory *memory;
    int argc; // behind the verb
    char **argv;
    cli_list arguments; // those without a flag; by cli_parse
    uint32_t given;     // bit i: the spec's option i was; by cli_parse
    bool helped;        // help was printed, and nothing is left to do
    // Takes the verb's description instead of reading the command line; NULL: it is read.
    void (*describe)(const cli_spec *spec, void *ctx);
    void *describe_ctx;
    const cli_verb_entry *verbs; // all of the program's
    bool running;                // set by the verb: from now on a failure is the running system's
    const char **lists[CLI_MAX_LISTS]; // of cli_parse, freed by main
    int32_t list_count;
} cli_call;

/* Reads the command line into the options' targets and call->arguments; prints help when asked to,
 * or gives `spec` to call->describe.
 *
 * Returns: MICS_OK, also where call->helped; MICS_ERR_INVALID, logged; MICS_ERR_MEMORY.
 */
mics_status cli_parse(cli_call *call, const cli_spec *spec);

/* The name that is meant by a mistyped one: the nearest by letters, else one that begins with it or
 * like it; NULL when there is none.
 */
const char *cli_nearest(const char *name, const char *const *names, int32_t count);

#endif
