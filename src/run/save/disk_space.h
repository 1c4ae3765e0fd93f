// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Space for checkpoints on the output folder's file system: said at the start, and made for a save.
#pragma once

#include "saver.h"

/* Bytes of a checkpoint, all ranks together, to within what headers take. Pure. */
int64_t run_disk_space_needed(const mics_job *job);

/* By the first process, at a start: warns where run.keep_checkpoints + 1 checkpoints do not fit. */
void run_disk_space_warn(const mics_job *job);

// What a rank has tried for one save.
typedef struct run_disk_space {
    bool waited;   // others may have made space
    int32_t tries; // in which nothing was left to remove
} run_disk_space;

/* Makes space for a save that found none: removes the oldest checkpoint that is kept, unless it is the
 * newest good one or none older is kept, as with run.keep_checkpoints 0. Where there is space by now, it
 * removes none.
 *
 * Returns: whether to try again.     Threads: savers of several ranks, on one folder. */
bool run_disk_space_make(const run_save *save, run_disk_space *tried);
