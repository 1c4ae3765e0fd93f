// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The log sink (the library's only mutable global) and the rank that a thread speaks for.
#include "mics/log.h"
#include <stdarg.h>
#include <stdio.h>

enum { LINE_BYTES = 2048 };

static void write_stderr(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    (void)ctx;
    static const char *const prefixes[] = {"error: ", "warning: ", ""};
    char where[32] = "";
    if (rank >= 0)
        snprintf(where, sizeof where, "rank %d: ", (int)rank);
    fprintf(stderr, "mics: %s%s%s\n", prefixes[level], where, line);
}

static mics_log_sink current_sink = write_stderr;
static void *current_ctx;
static _Thread_local int32_t thread_rank = -1;
static _Thread_local bool thread_demotes;

void mics_log_set_sink(mics_log_sink sink, void *ctx)
{
    current_sink = sink != NULL ? sink : write_stderr;
    current_ctx = sink != NULL ? ctx : NULL;
}

void mics_log_set_rank(int32_t rank)
{
    thread_rank = rank;
}

bool mics_log_demote(bool on)
{
    bool before = thread_demotes;
    thread_demotes = on;
    return before;
}

static void log_line(mics_log_level level, const char *format, va_list args)
{
    char line[LINE_BYTES];
    if (thread_demotes && level == MICS_LOG_ERROR)
        level = MICS_LOG_WARNING;
    vsnprintf(line, sizeof line, format, args);
    for (char *c = line; *c != '\0'; c++) {
        if (*c == '\n')
            *c = ' ';
    }
    current_sink(current_ctx, level, thread_rank, line);
}

void mics_log(mics_log_level level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line(level, format, args);
    va_end(args);
}

mics_status mics_fail(mics_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_line(MICS_LOG_ERROR, format, args);
    va_end(args);
    return status;
}
