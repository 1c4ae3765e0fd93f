// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What ranks as threads logged, in place of standard error.
#pragma once

#include "ranks.h"
#include <stdio.h>
#include <string.h>

typedef struct captured_log {
    pthread_mutex_t mutex;
    int lines;
    char last[1024];
} captured_log;

static captured_log captured = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void capture(void *ctx, mics_log_level level, int32_t rank, const char *line)
{
    captured_log *log = ctx;
    (void)level;
    (void)rank;
    pthread_mutex_lock(&log->mutex);
    log->lines++;
    snprintf(log->last, sizeof log->last, "%s", line);
    pthread_mutex_unlock(&log->mutex);
}

static inline int capture_start(void **state)
{
    (void)state;
    captured.lines = 0;
    captured.last[0] = '\0';
    mics_log_set_sink(capture, &captured);
    return 0;
}

static inline int capture_end(void **state)
{
    (void)state;
    mics_log_set_sink(NULL, NULL);
    return 0;
}

static inline void assert_logged(const char *text)
{
    if (strstr(captured.last, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", captured.last, text);
}

static inline int64_t count_of(const mics_status *statuses, int32_t ranks, mics_status status)
{
    int64_t count = 0;
    for (int32_t rank = 0; rank < ranks; rank++)
        count += statuses[rank] == status;
    return count;
}

static inline mics_comm_group world_ring(const mics_comm *comm, const char *what)
{
    return (mics_comm_group){.group = {.size = comm->ranks, .stride = 1, .index = comm->rank},
                             .what = what};
}

#define CAPTURED(test) cmocka_unit_test_setup_teardown(test, capture_start, capture_end)
