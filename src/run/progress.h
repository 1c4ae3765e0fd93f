// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a run stands. Each rank has its own progress, which changes alike on all ranks, step by
// step; only these functions change it. What is read by other threads of the process is published
// from there.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { RUN_NO_STEP = -1 };

// The newest steps as any rank of the process, or its saver, knows them; RUN_NO_STEP: none.
typedef struct run_standing {
    _Atomic int64_t step;  // done
    _Atomic int64_t saved; // a checkpoint on disk
    _Atomic int64_t kept;  // a copy in node memory, whole on all nodes
} run_standing;

// Steps; RUN_NO_STEP: none.
typedef struct run_progress {
    run_standing *standing; // where it is published
    int64_t step;           // done
    int64_t saved;          // newest checkpoint
    int64_t saving;         // being saved behind the steps
    int64_t kept;           // newest copy in node memory that this run has made
    int64_t agreed;         // newest state on which replicas agreed, or that was loaded
    int64_t validated;      // newest validation
    int64_t sampled;        // newest text that was due
} run_progress;

/* The run begins at a step, of which there is a checkpoint if `saved`. */
void run_standing_begin(run_standing *standing, int64_t step, bool saved);
void run_progress_begin(run_progress *progress, run_standing *standing, int64_t step, bool saved);

/* A checkpoint, or a copy, of a step is whole, or of none any more: for savers, who know before ranks
 * agree on it. Threads: any. */
void run_standing_save(run_standing *standing, int64_t step);
void run_standing_keep(run_standing *standing, int64_t step);

/* A step is done. */
void run_progress_step(run_progress *progress, int64_t step);

/* The run went back to the state of a step, on which replicas agreed. */
void run_progress_go_back(run_progress *progress, int64_t step);

/* Replicas agree on the state of the step that was done last. */
void run_progress_agree(run_progress *progress);

/* The step that was done last is being saved. */
void run_progress_begin_save(run_progress *progress);

/* That has ended: there is a checkpoint of it if `saved`. */
void run_progress_end_save(run_progress *progress, int64_t step, bool saved);

/* The newest checkpoint proved to be unreadable: `saved` is. RUN_NO_STEP: none. */
void run_progress_lose(run_progress *progress, int64_t saved);

/* Whether the step that was done last is saved, or about to be. */
bool run_progress_is_saved(const run_progress *progress);

/* A copy of the step that was done last is in node memory, on all nodes. */
void run_progress_keep(run_progress *progress);

/* What was due behind the step that was done last. */
void run_progress_validate(run_progress *progress);
void run_progress_sample(run_progress *progress);
