// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The files of checkpoints by their paths: of a file system, or objects of a bucket where a path begins with
// s3:// (io/remote/s3.h). A folder of a bucket is a prefix of names: nobody makes or removes it. An object
// is there whole or not at all, as a file is that rename places.
#pragma once

#include "io/remote/s3.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

// A file that is read; of an object a part at a time is in memory, so one thread reads it.
typedef struct mics_store_file {
    mics_memory *memory;
    const char *path; // borrowed
    int64_t bytes;
    int fd;       // -1: an object
    char *window; // bytes [begin, end) of it
    int64_t begin, end;
    int64_t last; // what is read in order ends there
} mics_store_file;

/* Opens a file, of which [begin, last) will be read in order.
 *
 * Returns: as mics_file_open_read, and as remote_s3_read. Owns: end it with mics_store_close. */
mics_status mics_store_open(mics_memory *memory, const char *path, int64_t begin, int64_t last,
                            mics_store_file *file_out);
mics_status mics_store_read(mics_store_file *file, void *data, size_t bytes, int64_t offset);
/* Closes; a zeroed one is allowed. */
void mics_store_close(mics_store_file *file);

/* As mics_file_read_whole. */
mics_status mics_store_read_whole(mics_memory *memory, const char *path, size_t max_bytes,
                                  char **text_out, size_t *bytes_out);

/* Bytes of a file; -1: it is surely not there. Returns: MICS_OK; MICS_ERR_IO and its kind,
 * MICS_ERR_COMM. */
mics_status mics_store_length(const char *path, int64_t *bytes_out);

/* mics_file_is_there. A bucket that cannot be asked is an error line. */
bool mics_store_is_there(const char *path);

/* As mics_file_replace, mics_file_make_dirs and mics_file_sync_dir. */
mics_status mics_store_replace(mics_memory *memory, const char *dir, const char *name,
                               const char *text, size_t bytes);
mics_status mics_store_make_dirs(mics_memory *memory, const char *path);
mics_status mics_store_sync_dir(const char *path);

/* As mics_file_write_whole. */
mics_status mics_store_write_whole(const char *path, const void *data, size_t bytes);

/* Removes a file; none is no error. */
mics_status mics_store_remove(const char *path);

// Names in a folder.
typedef struct mics_store_names {
    char *text;
    const char **list;
    int32_t count;
} mics_store_names;

/* Lists a folder, in no order; one that is not there is empty.
 *
 * Owns: end it with mics_store_names_fini. */
mics_status mics_store_list(mics_memory *memory, const char *dir, mics_store_names *names_out);
void mics_store_names_fini(mics_memory *memory, mics_store_names *names);
