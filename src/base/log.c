// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The log sink, the rank that a thread speaks for, and the line that it keeps back. The library's
// other mutable global is the list of unfinished files that a signal removes (file.c); what is found
// out about other libraries is kept once a process.
#include "mics/log.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 2048 };

// What a thread keeps back.
typedef struct held_line {
    bool holding, quiet;
    char line[LINE_BYTES];
} held_line;

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
static _Thread_local bool thread_demotes, thread_muted;
static _Thread_local held_line held;

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

bool mics_log_mute(bool on)
{
    bool before = thread_muted;
    thread_muted = on;
    return before;
}

// ---- one voice ----

void mics_log_hold(bool quiet)
{
    held = (held_line){.holding = true, .quiet = quiet};
}

void mics_log_set_quiet(bool quiet)
{
    held.quiet = quiet;
}

bool mics_log_take(char *line_out, size_t capacity)
{
    const bool any = held.line[0] != '\0';
    snprintf(line_out, capacity, "%s", held.line);
    held.line[0] = '\0';
    return any;
}

void mics_log_add(const char *text)
{
    size_t used = strlen(held.line);
    if (used > 0)
        snprintf(held.line + used, sizeof held.line - used, "; %s", text);
}

bool mics_log_release(bool speak, int32_t rank)
{
    bool any = held.line[0] != '\0';
    if (any && speak)
        current_sink(current_ctx, MICS_LOG_ERROR, rank, held.line);
    held = (held_line){0};
    return any;
}

// Keeps an error back, or drops what a quiet thread says; else false.
static bool keep_back(mics_log_level level, const char *line)
{
    if (level != MICS_LOG_ERROR)
        return held.quiet;
    if (held.holding && held.line[0] == '\0')
        snprintf(held.line, sizeof held.line, "%s", line);
    return held.holding;
}

// ---- lines ----

// Names and texts of foreign files stand in lines, and a terminal obeys control characters: newlines
// become spaces, others, those of two bytes (U+0080 to U+009F) too, question marks.
static void replace_controls(char *line)
{
    for (unsigned char *c = (unsigned char *)line; *c != '\0'; c++) {
        if (*c == '\n')
            *c = ' ';
        else if (*c < ' ' || *c == 0x7f)
            *c = '?';
        else if (*c == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
            c[0] = c[1] = '?';
    }
}

static void log_line(mics_log_level level, const char *format, va_list args)
{
    char line[LINE_BYTES];
    if (thread_muted)
        return;
    if (thread_demotes && level == MICS_LOG_ERROR)
        level = MICS_LOG_WARNING;
    mics_text_vformat(line, sizeof line, format, args);
    replace_controls(line);
    mics_text_hide_secrets(line);
    if (!keep_back(level, line))
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
