// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The exit status of a verb.
#include "cli.h"
#include "signals.h"

// Before anything runs, what is wrong is the usage, the configuration, a file it names, or a
// machine too small for it. What fails later is a failure of the running system, and so is, at any
// time, a disk that is full or cannot be written.
int cli_exit_status(mics_status status, bool running)
{
    if (status == MICS_OK)
        return EXIT_GOOD;
    if (status == MICS_ERR_INTERRUPTED)
        return CLI_EXIT_STOPPED;
    if (running)
        return EXIT_FAILED;
    switch (status) {
    case MICS_ERR_INVALID:
    case MICS_ERR_UNSUPPORTED:
    case MICS_ERR_FORMAT:
    case MICS_ERR_IO:
    case MICS_ERR_MEMORY:
        return EXIT_USAGE;
    default:
        return EXIT_FAILED;
    }
}
