// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM in training: the first asks for an orderly end, the second ends at once.
//
// A thread of its own waits for them; all others block them. There is no handler, because a handler
// would run on the stack of whatever thread it interrupts, and matrix kernels that oneDNN generates
// use the stack pointer for data while they run: the handler's frame would lie in the middle of
// somebody's heap.
//
// Under MPI a launcher sends SIGTERM to the ranks that are left when one has died, and kills them
// soon after. The step they are in will never end then. So a rank that is asked to stop says at
// once where the run can go on, and a deadline ends it if the step does not. The deadline starts
// again with each step and with each save, which may take longer. The line is written by
// one process of a machine or shared disk: the first to lock a byte of the run's lock file.
#ifndef MICS_CLI_SIGNALS_H
#define MICS_CLI_SIGNALS_H

#include "mics/run.h"
#include <stdint.h>

/* Blocks both signals in this thread, and so in all that it starts, and starts the one that waits
 * for them. Until the first cli_signals_phase they end the process as they always do. Call once,
 * before any other thread is started.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged.
 */
mics_status cli_signals_start(void);

/* What this process does from now on: mics_job_callbacks.phase. With the first one a signal asks for
 * an end, and no longer ends the process.
 *
 * Threads: any, one at a time.
 */
void cli_signals_phase(const mics_job_phase *phase);

/* The signal that asks to stop: "SIGINT", "SIGTERM", or NULL. Threads: any. */
const char *cli_signals_asked(void);

/* Ends the deadline: an orderly end was reached. A signal now ends the process as it always does.
 * Threads: any.
 */
void cli_signals_done(void);

#endif
