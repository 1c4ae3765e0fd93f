// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "cli.h"
#include <stdio.h>

static void show(void *ctx, const char *what, int64_t done, int64_t total)
{
    mics_progress_work(ctx, what, done, total);
}

mics_work_listener cli_work_open(mics_memory *memory, bool quiet, mics_progress **work_out)
{
    // Launchers give ranks terminals of their own, whatever becomes of their output.
    const mics_progress_mode mode =
        mics_job_is_launched() ? MICS_PROGRESS_PLAIN : MICS_PROGRESS_AUTO;
    if (quiet || mics_progress_open(memory, stderr, mode, 0, work_out) != MICS_OK)
        return (mics_work_listener){0};
    return (mics_work_listener){.ctx = *work_out, .progress = show};
}

void cli_work_close(mics_progress **work)
{
    mics_progress_close(*work);
    *work = NULL;
}
