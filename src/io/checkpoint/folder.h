// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Names in a run's checkpoints/ folder, and what may be removed there. Only folders called
// step-<8 or more digits> are looked at, links never, and only files that a save writes are
// removed.
#pragma once

#include "io/checkpoint/manifest.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

#define MICS_LATEST_NAME "latest"
#define MICS_BEST_NAME "best" // written by who trains, and never pruned
// In a step's folder: why a run that resumed went on from another.
#define MICS_PASSED_OVER_NAME "passed-over"

#define MICS_RANK_FILE_SUFFIX ".safetensors"
#define MICS_RANK_FILE_PART ".part" MICS_RANK_FILE_SUFFIX // while it is written

enum { MICS_CKPT_NAME_BYTES = 64 };
typedef struct mics_ckpt_name {
    char text[MICS_CKPT_NAME_BYTES];
} mics_ckpt_name;

mics_ckpt_name mics_ckpt_step_name(int64_t step); // "step-00000200"
// "rank-00003-g1.safetensors"
mics_ckpt_name mics_ckpt_rank_name(int32_t rank, int64_t generation);
mics_ckpt_name mics_ckpt_tokenizer_name(int64_t generation); // "tokenizer.json"

// What a run's folder holds.
typedef struct mics_ckpt_newest_found {
    mics_ckpt_name name;    // of the newest complete checkpoint; empty when there is none
    int64_t serial;         // its serial; -1
    mics_ckpt_name damaged; // of the newest with a manifest, when none is complete; else empty
    int32_t damaged_count;  // how many have a manifest, when none is complete
} mics_ckpt_newest_found;

/* Finds what mics_checkpoint_latest is about. */
mics_status mics_ckpt_newest(mics_memory *memory, const char *dir,
                             mics_ckpt_newest_found *found_out);

/* Removes step folders that have no manifest and hold nothing but files of a save, except that of
 * `step`. What cannot be removed is a warning. */
mics_status mics_ckpt_remove_leftovers(mics_memory *memory, const char *dir, int64_t step);

/* Removes what saves that were never committed left in all step folders: those of
 * mics_ckpt_remove_leftovers, and files that a manifest does not list. */
mics_status mics_ckpt_clean(mics_memory *memory, const char *dir);

/* Removes files of earlier saves of a step that its manifest does not list, and the mark that it was
 * passed over if `mark_too`. Failures are warnings. */
void mics_ckpt_remove_unlisted(mics_memory *memory, const char *folder,
                               const mics_manifest *manifest, bool mark_too);

/* Removes all complete checkpoints but the `keep` saved last and that of `step`, the manifest of
 * each first; marked ones do not count (mics_checkpoint_mark). Steps behind `last` are left alone.
 * What cannot be removed is a warning. */
mics_status mics_ckpt_prune(mics_memory *memory, const char *dir, int32_t keep, int64_t step,
                            int64_t last);
