// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the verbs of the program share.
#ifndef MICS_CLI_H
#define MICS_CLI_H

#include "args.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// More ranks than any machine has; keeps counts that are multiplied small.
enum { CLI_MAX_RANKS = 1 << 20 };

extern const cli_verb cmd_train, cmd_explain, cmd_generate, cmd_eval, cmd_tokenize, cmd_convert,
    cmd_bench, cmd_doctor, cmd_plan, cmd_verify, cmd_completion;

// main.c: all of the program's, in the order of the help; the last is NULL.
extern const cli_verb *const cli_verbs[];

/* Sends the library's messages to standard error, of errors the first alone: what follows it in a
 * process is a consequence.
 */
void cli_log_install(void);

/* Whether only errors and warnings are written, as by --quiet. */
void cli_log_quiet(bool on);

/* Whether an error was written. */
bool cli_log_has_error(void);

/* environment.c: sets what MPI, NCCL and OpenMP read, where it is not set. Starts the program again,
 * and does not return, where threads would spin for long while they wait. Needs: no other thread. */
void cli_prepare_environment(char **argv);

/* last_words.c: where the program ends in any other way than by cli_last_words_leave and a return
 * from main, a line says so. Not under a launcher: MPI has handlers of its own, and says it. */
void cli_last_words_install(void);
void cli_last_words_leave(void);

#endif
