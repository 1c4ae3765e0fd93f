// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files of a test: a folder of its own, written and removed.
#pragma once

#include "test.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char files_folder[] = "/tmp/mics-test-XXXXXX";

static inline int files_open(void)
{
    return mkdtemp(files_folder) != NULL ? 0 : 1;
}

static inline int files_remove_one(const char *path, const struct stat *facts, int flag,
                                   struct FTW *walk)
{
    (void)facts, (void)flag, (void)walk;
    return remove(path);
}

static inline void files_close(void)
{
    nftw(files_folder, files_remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

// Path of a file in the folder; good until eight more were asked for.
static inline const char *files_path(const char *name)
{
    static char paths[8][256];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", files_folder, name);
    return path;
}

static inline void files_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

// The whole of a file, NUL-terminated; the caller frees it.
static inline char *files_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    assert_true(bytes >= 0);
    rewind(file);
    char *data = malloc((size_t)bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)bytes, file), (size_t)bytes);
    assert_int_equal(fclose(file), 0);
    data[bytes] = '\0';
    *bytes_out = (size_t)bytes;
    return data;
}
