// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files that are downloaded into a cache which several processes share, of this and other machines.
#pragma once

#include "io/remote/http.h"
#include "mics/log.h"

enum { REMOTE_PATH_BYTES = 4096 };

typedef struct remote_file {
    const char *url;   // which may be signed
    const char *shown; // in messages
    const char *headers[REMOTE_MAX_HEADERS];
    int64_t bytes;        // -1: nobody knows
    const char *sha256;   // in hexadecimal digits; NULL: nobody knows
    const char *etag;     // of every response; NULL: any
    const char *checksum; // of remote_checksum; NULL or "": nobody knows
    bool is_signed;       // as of a request
    const char *if_range; // as of a request; NULL, and no sha256: a part is never gone on with
    int lock;             // of remote_lock, held
    // Logs what a status is that is no success, with what would help.
    mics_status (*refuse)(void *ctx, const char *shown, const remote_response *response);
    void *ctx;
} remote_file;

/* Downloads into `path`, through PATH.incomplete, with which a later call goes on. Nothing where
 * `path` is there.
 *
 * Returns: MICS_OK; MICS_ERR_COMM, MICS_ERR_FORMAT (other bytes than were promised, none of which are
 *          kept), MICS_ERR_IO and its kind: one line.
 */
mics_status remote_download(remote_http *http, const remote_file *file, const char *path);

/* Waits until no other process has locked the file `path`, which is made with its folder, and says how
 * far that one is. Returns: MICS_OK; MICS_ERR_IO and its kind, one line. Owns: close *lock_out. */
mics_status remote_lock(mics_memory *memory, const char *path, const char *shown, int *lock_out);

/* Bytes that are still to come of a file. */
int64_t remote_missing_bytes(const char *path, int64_t bytes);

/* Returns: MICS_OK; MICS_ERR_FULL, one line: the folder's disk has not so many bytes free. */
mics_status remote_check_disk(const char *folder, int64_t bytes, const char *shown);

/* Formats a path. Returns: MICS_OK; MICS_ERR_INVALID, logged: it is longer than any may be. */
mics_status remote_path(char path[REMOTE_PATH_BYTES], const char *format, ...) MICS_PRINTF(2, 3);

/* A folder among the user's caches. Returns: MICS_OK; MICS_ERR_INVALID, logged: nobody says where. */
mics_status remote_cache_of(const char *name, char path[REMOTE_PATH_BYTES]);

/* Makes the folder that holds `path`. */
mics_status remote_make_folder_of(mics_memory *memory, const char *path);
