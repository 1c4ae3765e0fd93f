// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files as this module needs them: opened only when regular, folders made and synced.
#ifndef MICS_DATA_FILES_H
#define MICS_DATA_FILES_H

#include "mics/status.h"
#include <stddef.h>

/* Opens a regular file for reading; anything else (a folder, a FIFO) is refused without blocking.
 *
 * Returns: MICS_OK; MICS_ERR_IO.             Owns: the caller closes *file_out.
 */
mics_status mics_file_open(const char *path, int *file_out, size_t *bytes_out);

/* Reads until `bytes` or the end of the file. Returns MICS_OK; MICS_ERR_IO. */
mics_status mics_file_read(const char *path, int file, void *data, size_t bytes, size_t *got_out);

/* Makes a folder and those above it. Returns MICS_OK; MICS_ERR_IO; MICS_ERR_INVALID (too long). */
mics_status mics_file_make_folders(const char *path);

/* Puts the names in the folder that holds `path` on disk. Returns MICS_OK; MICS_ERR_IO. */
mics_status mics_file_sync_folder_of(const char *path);

#endif
