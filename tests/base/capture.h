// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Catches what is logged, so that a test can ask what an error said and that it was said once.
#pragma once

#include "mics/log.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct capture {
    int errors;      // error lines since capture_begin
    int warnings;    // warning lines
    int infos;       // information lines
    char line[1024]; // the last error line
    char info[4096]; // the information lines, as many as fit
} capture;

// Ranks may speak at once.
static inline void capture_line(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    capture *seen = ctx;
    (void)rank;
    pthread_mutex_lock(&lock);
    if (level == MICS_LOG_ERROR) {
        seen->errors++;
        snprintf(seen->line, sizeof seen->line, "%s", line);
    } else if (level == MICS_LOG_WARNING) {
        seen->warnings++;
    } else {
        const size_t used = strlen(seen->info);
        seen->infos++;
        snprintf(seen->info + used, sizeof seen->info - used, "%s\n", line);
    }
    pthread_mutex_unlock(&lock);
}

static inline void capture_begin(capture *seen)
{
    *seen = (capture){0};
    mics_log_set_sink(capture_line, seen);
}

static inline void capture_end(void)
{
    mics_log_set_sink(NULL, NULL);
}

enum { CAPTURE_LINES = 8192 };

// A sink whose `ctx` is a text of CAPTURE_LINES bytes: all lines, as many as fit. Ranks may speak at once.
static inline void capture_lines(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char *lines = (char *)ctx;
    (void)level;
    (void)rank;
    pthread_mutex_lock(&lock);
    const size_t used = strlen(lines);
    snprintf(lines + used, CAPTURE_LINES - used, "%s\n", line);
    pthread_mutex_unlock(&lock);
}

// Fails the test unless exactly one error line was logged since capture_begin and it holds `part`.
#define ASSERT_SAID(seen, part)                                                                    \
    do {                                                                                           \
        if ((seen)->errors != 1 || strstr((seen)->line, (part)) == NULL)                           \
            fail_msg("%d error lines, last \"%s\"; expected one with \"%s\"", (seen)->errors,      \
                     (seen)->line, (part));                                                        \
        (seen)->errors = 0;                                                                        \
    } while (0)
