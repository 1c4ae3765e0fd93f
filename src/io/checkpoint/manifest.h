// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// manifest.json: what makes a folder a checkpoint. It lists the rank files, so which files belong
// to a checkpoint is decided by one rename. Its last line is a checksum of all the text before.
#pragma once

#include "base/json.h"
#include "base/text.h"
#include "mics/core/checkpoint.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

#define MICS_MANIFEST_NAME "manifest.json"

typedef struct mics_manifest_file {
    const char *name; // a plain file name
    int64_t bytes;
    uint64_t hash; // of a rank file's header; of the whole of another file
} mics_manifest_file;

typedef struct mics_manifest_unit {
    const char *name;
    int64_t elems;
} mics_manifest_unit;

// As read: texts lie in `json`, the arrays are the manifest's own. As written: all is borrowed.
typedef struct mics_manifest {
    mics_json *json;
    int64_t generation; // 0, and one more each time this step was saved again in this folder
    int64_t serial;     // one more than that of the checkpoint saved before; orders folders by age
    mics_checkpoint_meta meta;    // `tokenizer` is "bytes" or the name of a file in the folder
    mics_manifest_file tokenizer; // name NULL for "bytes"
    mics_manifest_file *files;    // one a writer, by rank
    int32_t file_count;
    mics_manifest_unit *units; // by name
    int32_t unit_count;
    int64_t *counted; // what meta.outer has, as read
} mics_manifest;

/* Appends a manifest's text, with its checksum. */
void mics_manifest_write(const mics_manifest *manifest, mics_text *text);

/* Reads and checks a manifest; the files that it lists are not looked at.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (file, line, what); MICS_ERR_MEMORY.
 * Owns:    free with mics_manifest_fini.
 */
mics_status mics_manifest_load(mics_memory *memory, const char *path, mics_manifest *manifest_out);

/* The same for a caller that goes on when the manifest is damaged: why it is, is then a warning. */
mics_status mics_manifest_try_load(mics_memory *memory, const char *path,
                                   mics_manifest *manifest_out);

/* Frees a manifest that was read; a zeroed one is allowed. */
void mics_manifest_fini(mics_memory *memory, mics_manifest *manifest);
