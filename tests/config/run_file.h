// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Writes run files into a temporary folder, which becomes the working directory, and loads them.
#pragma once

#include "base/capture.h"
#include "config/config.h"
#include "test.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

// The keys that every run file needs; more go behind them.
#define RUN_BASE                                                                                   \
    "\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]},\n"               \
    "\"run\": {\"steps\": 100}"
#define RUN_WITH(more) "{" RUN_BASE ",\n\"train_micro_batch_size_per_gpu\": 4,\n" more "}"
#define RUN_PLAIN "{" RUN_BASE ",\n\"train_micro_batch_size_per_gpu\": 4}"

static mics_memory *memory;
static capture seen;
static char folder[] = "/tmp/mics-config-XXXXXX";

static inline void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static inline mics_status load(const char *text, mics_run **run_out)
{
    write_file("run.json", text);
    return mics_run_load(memory, "run.json", NULL, 0, run_out);
}

static inline mics_run *load_good(const char *text)
{
    mics_run *run = NULL;
    mics_status status = load(text, &run);
    if (status != MICS_OK)
        fail_msg("%s: %s", mics_status_name(status), seen.line);
    return run;
}

// The file must be refused with `expected` and one line that has `part`.
static inline void check_refused(const char *text, mics_status expected, const char *part)
{
    mics_run *run = NULL;
    mics_status status = load(text, &run);
    if (status != expected)
        fail_msg("%s gave %s (%s), expected %s", text, mics_status_name(status), seen.line,
                 mics_status_name(expected));
    assert_null(run);
    ASSERT_SAID(&seen, part);
}

static inline mics_run_row find_row(const mics_run *run, const char *path)
{
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        mics_run_row row = mics_run_row_at(run, i);
        if (strcmp(row.key, path) == 0)
            return row;
    }
    return (mics_run_row){.key = NULL, .origin = "(no row)"};
}

static inline void check_row(const mics_run *run, const char *path, const char *value,
                             const char *origin)
{
    mics_run_row row = find_row(run, path);
    if (row.key == NULL || strcmp(row.value, value) != 0 || strcmp(row.origin, origin) != 0)
        fail_msg("%s: %s (%s), expected %s (%s)", path, row.value, row.origin, value, origin);
}

static inline int group_setup(void **state)
{
    (void)state;
    if (mkdtemp(folder) == NULL || chdir(folder) != 0)
        return 1;
    write_file("model.json", "{}");
    return 0;
}

static inline int group_teardown(void **state)
{
    (void)state;
    char command[64];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : 1;
}

static inline int setup(void **state)
{
    (void)state;
    capture_begin(&seen);
    return mics_memory_open(&memory) == MICS_OK ? 0 : 1;
}

static inline int teardown(void **state)
{
    (void)state;
    capture_end();
    return mics_memory_close(memory) == 0 ? 0 : 1;
}

// A file without a section of ours that says how it is trained.
#define FOREIGN(more)                                                                              \
    "{\"model\": {\"config\": \"model.json\"}, \"data\": {\"train\": [\"a.txt\"]},\n" more "}"

static inline void check_value(const char *text, const char *path, const char *value)
{
    mics_run *run = load_good(text);
    const mics_run_row row = find_row(run, path);
    if (row.key == NULL || strcmp(row.value, value) != 0)
        fail_msg("%s: %s is %s, expected %s", text, path, row.key != NULL ? row.value : "absent",
                 value);
    mics_run_close(run);
}
