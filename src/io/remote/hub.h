// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Repositories of a Hugging Face hub, and the cache of what a server lists.
#pragma once

#include "base/json.h"
#include "io/remote/download.h"
#include "io/remote/remote.h"

enum { REMOTE_NAME_BYTES = 1024 };

// hf://[datasets/]ORG/NAME[@REVISION][/PATH]
typedef struct remote_hub_name {
    bool dataset;
    char repo[REMOTE_NAME_BYTES];     // "org/name"
    char revision[REMOTE_NAME_BYTES]; // "main", where none is given
    char path[REMOTE_NAME_BYTES];     // of a file, a folder or a glob; "": of all
} remote_hub_name;

/* Reads what follows "hf://". Returns: whether it is such a name. Pure. */
bool remote_hub_parse(const char *text, remote_hub_name *name_out);

/* Whether somebody else's name of a file may be one in a folder of ours: relative, nowhere up. Pure. */
bool remote_path_is_safe(const char *path);

enum { REMOTE_COMMIT_DIGITS = 40 };
typedef struct remote_hub remote_hub;

// A file that a server lists.
typedef struct remote_hub_file {
    const char *name, *blob, *sha256; // sha256 NULL: the server says none
    int64_t bytes;
} remote_hub_file;

// What differs from server to server.
typedef struct remote_hub_source {
    // Writes the list into the file `asked`: {"sha": COMMIT, "siblings": [{"rfilename", "size", "blobId"}, ...]}.
    mics_status (*ask)(remote_hub *self, const char *asked);
    mics_status (*download)(remote_hub *self, const remote_hub_file *file, const char *blob);
    mics_status (*fail_missing)(const remote_hub *self); // nothing there is what is wanted
} remote_hub_source;

// A repository, or the folder of a bucket.
struct remote_hub {
    const remote_hub_source *source;
    mics_memory *memory;
    const char *url; // as the user gave it; it holds no secret
    mics_remote_want want;
    int lock;
    remote_hub_name name;
    char endpoint
        [REMOTE_NAME_BYTES];     // without a slash at its end; of a bucket "s3://BUCKET/FOLDER/"
    char header[512];            // "Authorization: Bearer ..."; "": there is no token
    char dir[REMOTE_PATH_BYTES]; // in the cache
    char commit[REMOTE_COMMIT_DIGITS + 1]; // "": unknown
    remote_http *http;
    mics_json *listing; // of the commit's files; NULL: unknown
    int64_t missing;    // bytes that are wanted and not there; a link is one
    int32_t count;      // files that are wanted
};

/* Fetches what is wanted of one that is opened.
 *
 * Returns: as mics_remote_fetch. */
mics_status remote_hub_get(remote_hub *self);

/* The same, and where it lies. Ends it. */
mics_status remote_hub_get_path(remote_hub *self, char **path_out);

/* Finds the commit, and its list if that is there. Returns: MICS_OK; MICS_ERR_FORMAT, MICS_ERR_IO, one line. */
mics_status remote_hub_load(remote_hub *self);

/* Opens what a path of remote_hub_fetch names. Returns: whether it is one. Owns: end it with remote_hub_close. */
bool remote_hub_open_path(remote_hub *self, mics_memory *memory, const char *path,
                          mics_remote_want want);

/* Whether files are named so there, as far as its list is known. */
bool remote_hub_has(remote_hub *self);

/* Closes; a zeroed one is allowed. */
void remote_hub_close(remote_hub *self);

/* mics_remote_fetch of a URL that begins with hf://. */
mics_status remote_hub_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                             char **path_out);
