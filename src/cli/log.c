// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Error lines of the program: a process writes one, its first.
#include "cli.h"
#include <stdatomic.h>
#include <stdio.h>

static atomic_bool error_written, quiet;

static void sink(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    static const char *const prefixes[] = {"error: ", "warning: ", ""};
    char where[32] = "";
    (void)ctx;
    if (level == MICS_LOG_INFO && atomic_load(&quiet))
        return;
    if (level == MICS_LOG_ERROR && atomic_exchange(&error_written, true))
        return;
    if (rank >= 0)
        snprintf(where, sizeof where, "rank %d: ", (int)rank);
    fflush(stdout); // so that the two streams stay in order where they share a terminal
    fprintf(stderr, "mics: %s%s%s\n", prefixes[level], where, line);
}

bool cli_log_has_error(void)
{
    return atomic_load(&error_written);
}

void cli_log_quiet(bool on)
{
    atomic_store(&quiet, on);
}

void cli_log_install(void)
{
    mics_log_set_sink(sink, NULL);
}
