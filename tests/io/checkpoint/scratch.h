// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A folder for one test, and whole files in it.
#pragma once

#include "test.h"
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SCRATCH_PATH = 512 };

typedef struct scratch {
    char dir[SCRATCH_PATH];
} scratch;

static inline bool scratch_make_in(scratch *place, const char *base)
{
    snprintf(place->dir, sizeof place->dir, "%s/mics-test-XXXXXX", base);
    return mkdtemp(place->dir) != NULL;
}

static inline void scratch_make(scratch *place)
{
    const char *base = getenv("TMPDIR");
    assert_true(scratch_make_in(place, base != NULL ? base : "/tmp"));
}

// In memory where that is possible: for tests that sync often and lose no power.
static inline void scratch_make_fast(scratch *place)
{
    if (!scratch_make_in(place, "/dev/shm"))
        scratch_make(place);
}

static inline int scratch_unlink(const char *path, const struct stat *info, int kind,
                                 struct FTW *walk)
{
    (void)info;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline void scratch_remove(scratch *place)
{
    nftw(place->dir, scratch_unlink, 16, FTW_DEPTH | FTW_PHYS);
}

// Path of something in the folder, in one of four buffers that take turns.
static inline const char *scratch_path(const scratch *place, const char *name)
{
    static char paths[4][SCRATCH_PATH * 2];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", place->dir, name);
    return path;
}

static inline bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static inline void file_write(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

// The file's bytes and a NUL; the caller frees them.
static inline unsigned char *file_read(const char *path, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    size_t bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char *data = malloc(bytes + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, bytes, file), bytes);
    data[bytes] = '\0';
    fclose(file);
    *bytes_out = bytes;
    return data;
}

// Numbers that only look random: the same on every run.
static inline uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}
