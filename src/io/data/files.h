// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The files that paths, globs and folders name.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct mics_file_name {
    char *path;
    int32_t pattern; // which one named it
} mics_file_name;

// Zeroed but for `memory` it is empty; mics_files_fini ends it.
typedef struct mics_files {
    mics_memory *memory;
    mics_file_name *items;
    int64_t count, capacity;
} mics_files;

/* Appends what a path, a glob or a folder names. Of a glob and a folder, sorted by the bytes of
 * their paths; of a folder, with the folders in it, those whose names end as texts and shards do
 * (docs/formats.md), and none whose name begins with a dot. A folder's files are logged as counts.
 * A path without its ".bin" names a shard with an .idx beside it, as Megatron's arguments do.
 *
 * Returns: MICS_OK; MICS_ERR_IO (nothing there); MICS_ERR_INVALID (a folder without any such file,
 *          or too deep); MICS_ERR_MEMORY. Logged.
 */
mics_status mics_files_add(mics_files *files, const char *pattern, int32_t number);
/* Bytes of a regular file; of anything else 0. */
int64_t mics_files_bytes(const char *path);
void mics_files_fini(mics_files *files);
