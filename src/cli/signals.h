// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Signals in training: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 ask for an orderly end, a second
// SIGINT or SIGTERM ends at once.
//
// A thread of its own waits for them; all others block them. There is no handler, because a handler
// would run on the stack of whatever thread it interrupts, and matrix kernels that oneDNN generates
// use the stack pointer for data while they run: the handler's frame would lie in the middle of
// somebody's heap.
//
// The thread asks the job to stop, and then looks where it stands. Usually the ranks end by
// themselves, within a step. A step may be longer than the time that there is (run.grace_s), or
// never end, because a rank has died and the launcher tells the others so. So when that time is
// over the thread ends the process: with 75 when the state is saved, and with 1 when it cannot be.
// It never ends a save that goes on, unless the same state is in node memory. Of the processes that
// share a disk one speaks: the first to lock a byte of the run's lock file.
#pragma once

#include "mics/run.h"

enum { CLI_EXIT_STOPPED = 75 }; // EX_TEMPFAIL of sysexits.h: try again later

/* Blocks the signals in this thread, and so in all that it starts, and starts the one that waits
 * for them. Until cli_signals_resumable or cli_signals_serve they end the process as they always do.
 * Call once, before any other thread is started.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged.
 */
mics_status cli_signals_start(void);

/* What a signal means for a command that serves no job: "nothing was written". The process says it as
 * it ends. Needs: a text that lives on. Threads: any; the newest counts. */
void cli_signals_word(const char *word);

/* From now on a signal asks this job to stop. Needs: cli_signals_done before the job is closed. */
void cli_signals_serve(mics_job *job);

/* A signal before cli_signals_serve ends the process with CLI_EXIT_STOPPED: a program that is started
 * again loses nothing. Threads: any. */
void cli_signals_resumable(void);

/* The job has ended, or there was nothing to train, and the process is to end with `status`. A signal
 * now changes nothing, unless the process takes longer than run.grace_s, or the signal comes again: the
 * process ends with `status` then, and at once where that is an error's. */
void cli_signals_done(const mics_job *job, int status);

/* The signal that asks to stop, such as "SIGINT", or NULL. Threads: any. */
const char *cli_signals_asked(void);
