// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the verbs of the program share: their table, exit statuses and error lines.
#ifndef MICS_CLI_H
#define MICS_CLI_H

#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// More ranks than any machine has; keeps products of counts small.
enum { CLI_RANKS_MAX = 1 << 20 };

enum { CLI_EXIT_OK = 0, CLI_EXIT_FAILED = 1, CLI_EXIT_USAGE = 2 };

// One verb: "train" and what it does. argv[0] is the first argument after the verb.
typedef struct cli_verb {
    const char *name;
    const char *about;
    int (*run)(int argc, char **argv);
} cli_verb;

int cmd_train(int argc, char **argv);
int cmd_explain(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_eval(int argc, char **argv);
int cmd_tokenize(int argc, char **argv);
int cmd_convert(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_plan(int argc, char **argv);

/* The exit status of a command that ended with `status`; the one place that maps them.
 *
 * Before anything runs (`running` false), what is wrong is the usage, the configuration, a file it
 * names, or a machine too small for it: 2. What fails later is a failure of the running system: 1. So is, at any time,
 * a disk that is full or cannot be written.
 */
int cli_exit_status(mics_status status, bool running);

/* Sends the library's messages to standard error, of errors the first alone: what follows it in a
 * process is a consequence.
 */
void cli_log_install(void);

#endif
