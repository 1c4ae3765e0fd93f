// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a run's state is saved: node memory and disk. Both are used through the same five verbs.
#pragma once

#include "io/checkpoint/node.h"
#include "mics/core/mesh.h"
#include "run/context.h"

typedef struct run_save run_save;
typedef struct run_saver run_saver;

typedef struct run_tier {
    const char *name;
    // Makes ready what is to be written: from then on an update may change the state, if the save stages
    // it.
    void (*stage)(run_save *save);
    // Writes the rank's part.
    mics_status (*write)(run_save *save);
    // Waits for the parts of others, and makes the save count. On ranks that have nothing to commit it
    // may return before that.
    mics_status (*commit)(run_save *save);
    // The newest state there that the job has not passed over: its step (-1: none) and its folder, which
    // the caller frees.
    mics_status (*find)(const mics_job *job, int64_t *step_out, char **path_out);
    // Removes what a checkpoint of a step makes needless.
    void (*prune)(run_saver *saver, int64_t step);
} run_tier;

extern const run_tier run_memory_tier, run_disk_tier;

// What a rank tells the others of its part of a copy in node memory.
typedef struct run_copy_report {
    int64_t bytes;
    uint64_t hash;
    int64_t status;
} run_copy_report;

// A copy under way in node memory, as a rank has it.
typedef struct run_copy {
    mics_keep keep;
    char *slot;               // folder
    run_copy_report *reports; // by rank
    void *staging;            // of a partner's copy (exchange.h); NULL: none
    double begin_us;
} run_copy;

/* The step that a checkpoint's folder is named after; -1: none. */
int64_t run_step_of(const char *path);

/* Takes the checkpoint, or the copy in node memory, back of a step that is not to count. */
void run_disk_withdraw(run_save *save);
void run_copy_withdraw(run_save *save);
