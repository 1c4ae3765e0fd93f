// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files that are downloaded into a cache which several processes share, of this and other machines:
// one of them downloads a file, the others wait for it.
#pragma once

#include "io/remote/http.h"
#include "mics/log.h"

enum { REMOTE_PATH_BYTES = 4096 };

typedef struct remote_file {
    const char *url;    // which may be signed
    const char *shown;  // in messages
    const char *header; // "Authorization: ..."; NULL: none
    const char *lock;   // a file beside the cache's, made with its folder
    int64_t bytes;      // -1: as the server says
    const char *sha256; // in hexadecimal digits; NULL: nobody says it
    bool changes;       // the server may have another version, which it tells by an ETag
    // Logs what a status is that is no success, with what would help.
    mics_status (*refuse)(void *ctx, const char *shown, const remote_response *response);
    void *ctx;
} remote_file;

/* Downloads into `path`, through PATH.incomplete, which a later call goes on with. Nothing where
 * `path` is there, and of a file that changes is the server's, or was looked at since this process
 * began to download. A server that does not answer leaves what is there, with a warning.
 *
 * `http`:  NULL: offline, so `path` must be there.
 * Returns: MICS_OK; MICS_ERR_COMM, MICS_ERR_FORMAT (other bytes than were promised), MICS_ERR_IO and
 *          its kind, MICS_ERR_INVALID (offline): one line; MICS_ERR_MEMORY.
 */
mics_status remote_download(mics_memory *memory, remote_http *http, const remote_file *file,
                            const char *path);

/* Formats a path. Returns: MICS_OK; MICS_ERR_INVALID, logged: it is longer than any may be. */
mics_status remote_path(char path[REMOTE_PATH_BYTES], const char *format, ...) MICS_PRINTF(2, 3);

/* A folder among the user's caches. Returns: MICS_OK; MICS_ERR_INVALID, logged: nobody says where. */
mics_status remote_cache_of(const char *name, char path[REMOTE_PATH_BYTES]);

/* Makes the folder that holds `path`. */
mics_status remote_make_folder_of(mics_memory *memory, const char *path);
