// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// All shards of all rank files of a checkpoint, by unit and place. Made when a checkpoint is
// opened, and by rank 0 before it commits one.
#pragma once

#include "io/checkpoint/manifest.h"
#include "io/checkpoint/rank_file.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

typedef struct mics_catalog_shard {
    const mics_rank_shard *shard;
    int32_t file;
} mics_catalog_shard;

typedef struct mics_catalog_unit {
    const char *name;
    int64_t elems;
    int64_t first; // of its shards
    int64_t
        count; // of them; in ascending order, they tile [0, elems) exactly, with the same states
} mics_catalog_unit;

typedef struct mics_catalog {
    mics_rank_file *files;
    int32_t file_count;
    mics_catalog_shard *shards; // none of them empty
    mics_catalog_unit *units;   // by name
    int32_t unit_count;
} mics_catalog;

/* Loads the headers of the rank files that a manifest lists, and checks that they belong together
 * and that the shards of every unit tile it, all with the same states; of several islands, that each unit
 * has those of every island.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (which file, unit and element); MICS_ERR_MEMORY.
 * Owns:    free with mics_catalog_fini; the manifest is borrowed for the call.
 */
mics_status mics_catalog_load(mics_memory *memory, const char *folder,
                              const mics_manifest *manifest, int64_t step,
                              mics_catalog *catalog_out);

void mics_catalog_fini(mics_memory *memory, mics_catalog *catalog);

/* The unit called `name`, or NULL. */
const mics_catalog_unit *mics_catalog_find(const mics_catalog *catalog, const char *name);
