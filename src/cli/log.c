// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Error lines of the program: the first one of a process is written, and in setup one rank's.
#include "cli.h"
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 2048 + 1 }; // mics_log cuts at 2 KiB

// What a thread keeps back.
typedef struct held_line {
    bool holding, quiet, muted;
    char line[LINE_BYTES];
} held_line;

static _Thread_local held_line held;
static atomic_bool error_written, disk_failed;

// The causes that name the machine and not what the user wrote, in the system's words, with which
// error lines say them.
static bool names_failed_disk(const char *line)
{
    static const int causes[] = {ENOSPC, EDQUOT, EROFS, EIO};
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        if (strstr(line, strerror(causes[i])) != NULL)
            return true;
    }
    return false;
}

static void write_line(mics_log_level level, int32_t rank, const char *line)
{
    static const char *const prefixes[] = {"error: ", "warning: ", ""};
    char where[32] = "";
    if (rank >= 0)
        snprintf(where, sizeof where, "rank %d: ", (int)rank);
    fflush(stdout); // so that the two streams stay in order where they share a terminal
    fprintf(stderr, "mics: %s%s%s\n", prefixes[level], where, line);
}

static void sink(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    if (held.muted)
        return;
    if (level != MICS_LOG_ERROR) {
        if (!held.quiet)
            write_line(level, rank, line);
        return;
    }
    if (names_failed_disk(line))
        atomic_store(&disk_failed, true);
    if (held.holding) {
        if (held.line[0] == '\0')
            snprintf(held.line, sizeof held.line, "%s", line);
        return;
    }
    if (!atomic_exchange(&error_written, true))
        write_line(level, rank, line);
}

void cli_log_install(void)
{
    mics_log_set_sink(sink, NULL);
}

bool cli_log_disk_failed(void)
{
    return atomic_load(&disk_failed);
}

void cli_log_hold(bool quiet)
{
    held = (held_line){.holding = true, .quiet = quiet};
}

void cli_log_set_quiet(bool quiet)
{
    held.quiet = quiet;
}

void cli_log_add(const char *text)
{
    size_t used = strlen(held.line);
    if (used > 0)
        snprintf(held.line + used, sizeof held.line - used, "; %s", text);
}

bool cli_log_mute(bool on)
{
    bool before = held.muted;
    held.muted = on;
    return before;
}

bool cli_log_release(bool speak, int32_t rank)
{
    bool any = held.line[0] != '\0';
    if (any && speak && !atomic_exchange(&error_written, true))
        write_line(MICS_LOG_ERROR, rank, held.line);
    held = (held_line){0};
    return any;
}
