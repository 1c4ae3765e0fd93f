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

// ---- error lines ----
// One process writes one error line: the first. What follows it is a consequence.

/* Sends the library's messages through the rules above. */
void cli_log_install(void);

/* Whether an error of this process was that of a full, read-only or broken disk, which is a failure
 * of the system and not of the usage, whenever it happens. */
bool cli_log_disk_failed(void);

/* From now on this thread's error line is kept back, and its other messages are dropped when
 * `quiet`. For setup that all ranks do alike, where one of them speaks for all.
 */
void cli_log_hold(bool quiet);

/* Changes whether other messages are dropped; a line that is kept back stays. */
void cli_log_set_quiet(bool quiet);

/* Adds what to do to the line that is kept back, behind "; "; nothing when there is none. */
void cli_log_add(const char *text);

/* While on, all that this thread logs is dropped: around a trial whose failure is nobody's error.
 * Returns what was before, to be set again.
 */
bool cli_log_mute(bool on);

/* Ends holding. Writes the line that was kept back if `speak`, with `rank` in front unless it is
 * negative. Returns whether there was one.
 */
bool cli_log_release(bool speak, int32_t rank);

#endif
