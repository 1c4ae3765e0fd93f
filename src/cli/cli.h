// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the verbs of the program share.
#pragma once

#include "args.h"
#include "io/remote/remote.h"
#include "mics/log.h"
#include "mics/memory.h"
#include "mics/report.h"
#include "mics/run.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// More ranks than any machine has; keeps counts that are multiplied small.
enum { CLI_MAX_RANKS = 1 << 20 };

extern const cli_verb cmd_train, cmd_explain, cmd_generate, cmd_eval, cmd_tokenize, cmd_convert,
    cmd_bench, cmd_doctor, cmd_plan, cmd_verify, cmd_completion, cmd_report, cmd_watch;

enum { EXIT_GOOD = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 }; // and CLI_EXIT_STOPPED

/* The exit status that stands for what a verb returned; `running`: once it ran. */
int cli_exit_status(mics_status status, bool running);

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

/* work.c: opens the display of long work other than training, on standard error, as results go to
 * standard output; unless `quiet`. One that cannot be opened is none. Needs: *work_out is NULL.
 * Returns: the listener for the library; valid until cli_work_close. */
mics_work_listener cli_work_open(mics_memory *memory, bool quiet, mics_progress **work_out);
void cli_work_close(mics_progress **work);

/* saved.c: downloads what is remote, and makes *path the local one, which the call owns. NULL is
 * allowed. Returns: MICS_OK; as mics_remote_fetch. */
mics_status cli_fetch(cli_call *call, mics_remote_want want, const char **path);

/* saved.c: opens the verb's first argument: a checkpoint, a folder of a model, or an adapter on `base`;
 * or with `adapter` that one on it. NULL: they are not given.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID: both are given; as mics_saved_open.
 * Owns:    close with mics_saved_close.
 */
mics_status cli_open_saved(cli_call *call, const char *adapter, const char *base,
                           mics_saved **saved_out);

/* replicas.c: "parameters 4 times, gradients 2, optimizer 2; masters and moments are compared every
 * 100 steps and before each save".   Returns: `text`. */
char *cli_replicas_text(const mics_job *job, char *text, size_t capacity);

/* "2 islands of 2 ranks meet every 30 steps, in one step, in fp32; ...": of a job with local steps.
 * Returns: `text`. */
char *cli_islands_text(const mics_job *job, char *text, size_t capacity);
