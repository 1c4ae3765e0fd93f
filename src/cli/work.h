// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The display of long work other than training, on standard error: results go to standard output.
#ifndef MICS_CLI_WORK_H
#define MICS_CLI_WORK_H

#include "mics/report.h"
#include "mics/run.h"

typedef struct cli_work {
    mics_progress *progress; // NULL: nothing is shown
} cli_work;

/* Opens the display, unless `quiet`. A display that cannot be opened is none.
 * Returns: the listener for the library; valid until cli_work_close. */
mics_work_listener cli_work_open(mics_memory *memory, bool quiet, cli_work *work);
void cli_work_close(cli_work *work);

#endif
