// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM in training: the first asks for an orderly end, the second ends at once.
//
// Under MPI a launcher sends SIGTERM to the ranks that are left when one has died, and kills them
// soon after. The step they are in will never end then. So a rank that is asked to stop says at
// once where the run can go on, and a deadline ends it if the step does not. The line is written by
// one process of a machine or shared disk: the first to lock a byte of the run's lock file.
#ifndef MICS_CLI_SIGNALS_H
#define MICS_CLI_SIGNALS_H

#include <stdbool.h>
#include <stdint.h>

/* Installs the handlers. `rank` is named in lines under MPI, -1 otherwise; `lock_file` is the open
 * lock file, or -1. Call once, before training.
 */
void cli_signals_install(int32_t rank, int lock_file);

/* Tells the handler where training is, for its line: `step` runs, `saved` is the newest
 * checkpoint's (0: none). One thread calls it.
 */
void cli_signals_progress(int64_t step, int64_t saved);

/* The signal that asks to stop: "SIGINT", "SIGTERM", or NULL. Threads: any. */
const char *cli_signals_asked(void);

/* Ends the deadline: an orderly end was reached. */
void cli_signals_done(void);

#endif
