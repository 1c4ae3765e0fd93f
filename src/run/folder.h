// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run's folder: one run at a time writes there, and nothing there that is not a run's.
#pragma once

#include "mics/memory.h"
#include <stdbool.h>
#include <stdint.h>

// Begins as RUN_FOLDER_NONE.
typedef struct run_folder {
    int lock_file; // OUT/lock, byte 0 of which is locked; -1: none
    int folder;    // OUT itself, locked too: a lock file can be removed; -1: none
    uint64_t mark; // in OUT/lock, new for each run of several processes, which all see it, and
                   // for each without locks
    bool unlocked; // the file system has no locks: only the mark tells another run
    bool made;     // the lock, and the run has not begun
    int32_t made_folders; // OUT and its parents, of those that were not there
} run_folder;

#define RUN_FOLDER_NONE ((run_folder){.lock_file = -1, .folder = -1})

// What this process is to the folder.
typedef enum run_folder_role {
    RUN_FOLDER_ALONE, // the only process of the run
    RUN_FOLDER_FIRST, // the first of several
    RUN_FOLDER_OTHER  // one that looks for the first one's lock
} run_folder_role;

/* Makes the folder and locks it, unless another process does; waits up to 10 s for a run that ends.
 *
 * holds_run: checkpoints were found in it, so that its files are a run's.
 * Returns: MICS_OK; MICS_ERR_INVALID: another run writes there, or a file is there that the run
 *          would overwrite and that no run wrote, or (not the first) it is another folder;
 *          MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    release with run_folder_unlock, also after a failure.
 */
mics_status run_folder_lock(mics_memory *memory, const char *path, run_folder_role role,
                            bool holds_run, run_folder *out);

/* After a run that was refused: removes the lock and the folders that run_folder_lock made, unless
 * the folder holds anything of a run by now, so that all is as it was before. Call before
 * run_folder_unlock. */
void run_folder_forget(mics_memory *memory, const char *path, const run_folder *out);

/* Refuses to go on in a folder in which another run has begun since, as it can where locks fail: what
 * the two save would be mixed. By the process that locked it, before anything there is replaced.
 *
 * Returns: MICS_OK, also where OUT/lock cannot be read; MICS_ERR_INVALID, one line.
 */
mics_status run_folder_check_mark(const char *path, const run_folder *out);

/* Gives the locks up. */
void run_folder_unlock(run_folder *out);
