// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Files that lie elsewhere: hf:// (models and data sets of a Hugging Face hub), s3:// and https://. They are
// downloaded into a cache and are local files then. docs/remote.md has the rules.
#pragma once

#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>

// What is wanted of a model's repository or folder.
typedef enum mics_remote_want {
    MICS_REMOTE_NAMES, // of a hub's or bucket's data no file yet: mics_remote_complete downloads them
    MICS_REMOTE_FILES,  // data: what is named, so never a whole repository
    MICS_REMOTE_CONFIG, // all but weights
    MICS_REMOTE_WEIGHTS // with safetensors
} mics_remote_want;

/* Whether a path names something remote: it begins with a scheme and "://". Pure. */
bool mics_remote_is(const char *path);

/* Whether a path names an object of a bucket, or a prefix of some: s3://BUCKET/KEY. Pure. */
bool mics_remote_is_bucket(const char *path);

/* Whether a URL is no bucket's, or a prefix with a model or an adapter of Hugging Face and no checkpoint. Returns: as
 * mics_remote_fetch. */
mics_status mics_remote_holds_model(mics_memory *memory, const char *url, bool *is_out);

/* Downloads what is not in the cache yet. Processes of several ranks may call this at once: one of
 * those that share a cache downloads, the others wait for it.
 *
 * Returns: MICS_OK: *path_out is a local file, folder or glob; MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED,
 *          MICS_ERR_COMM, MICS_ERR_FORMAT, MICS_ERR_IO and its kind: one line; MICS_ERR_MEMORY.
 * Owns:    the caller frees *path_out with mics_free.
 */
mics_status mics_remote_fetch(mics_memory *memory, const char *url, mics_remote_want want,
                              char **path_out);

/* Downloads what a path of mics_remote_fetch lacks: data, weights, or all where a hub's cache was lost since.
 * Other paths stay as they are. Returns: as mics_remote_fetch. */
mics_status mics_remote_complete(mics_memory *memory, const char *path, mics_remote_want want);

/* Whether `folder`, of mics_remote_fetch, will have weights of that name by mics_remote_complete. */
bool mics_remote_awaits(mics_memory *memory, const char *folder, const char *name);
