// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank that trains does about numbers that cannot be right: steps whose loss is not finite,
// impossible or a spike, and replicas that differ. Every rank takes every decision alike, as it
// takes it by numbers that the ranks have exchanged.
#ifndef MICS_RUN_GUARD_H
#define MICS_RUN_GUARD_H

#include "job.h"
#include "mics/checkpoint.h"
#include "mics/engine.h"

typedef struct run_guard {
    mics_scaler scaler;            // of the run's start
    mics_checkpoint_losses recent; // a part of the state: saved and loaded with it
    int64_t agreed_step;           // newest state in which replicas agreed, or that was loaded
    // The newest difference, and how often replicas have differed since a state behind it agreed.
    mics_divergence newest;
    int64_t diverged_step, rewound_step;
    int32_t tries;
    mics_agreement *first; // by rank: of a suspicious step, before it is run again
} run_guard;

/* Begins, with the engine open and its state loaded, guard.recent included.
 * Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status run_guard_open(run_trainer *self);
void run_guard_close(run_trainer *self);

/* Trains a step: self->step becomes `step`, and self->newest its result. self->step is less than
 * that if the step has to be run again, from the state that self->step then names, or was held.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC, logged by rank 0, the same on all ranks; as mics_engine_step
 *          and run_guard_check.
 * Collective: over ranks. */
mics_status run_guard_step(run_trainer *self, int64_t step, float lr,
                           const mics_batch_source *source);

/* Compares replicas after a step if that is due, or `saves`. Afterwards self->step is less than
 * `step` if the run went back to an older state.
 *
 * Returns: as run_guard_step; what reading the older state returned. Collective: over ranks. */
mics_status run_guard_check(run_trainer *self, int64_t step, bool saves);

// ---- rewind.c ----

/* Goes on after replicas were found to differ, as run.on_divergence says: the state is then good,
 * and self->step names it. Returns: as run_guard_check. */
mics_status run_guard_diverged(run_trainer *self, int64_t step, const mics_divergence *found);

/* Compares replicas before a state is saved to stop.
 *
 * Returns: as run_guard_check, but MICS_ERR_NUMERIC where they differ: nobody may change a state that
 *          is being written. Collective: over ranks. */
mics_status run_guard_check_stop(run_trainer *self);

// Where a state comes from that is good as far as anybody knows.
typedef struct run_guard_source {
    int64_t step;
    char path[RUN_PATH_BYTES]; // of a checkpoint; "": what the run began with, or node memory
    bool in_memory;            // the copy that was found there (node_memory.h)
} run_guard_source;

/* The newest such state that is not in node memory: number `which` of them, newest first. Returns:
 * false: there are no more. */
bool run_guard_newest_saved(const run_trainer *self, int32_t which, run_guard_source *source_out);

// ---- aside.c ----

/* Saves the state as it is, that of step `step`, as OUT/aside/step-N, if it is finite and replicas
 * agree on it, and not among the checkpoints already. Writes into `text` where it is, or why not.
 *
 * Returns: MICS_OK, also when it could not be saved; as mics_engine_agree. Collective. */
mics_status run_guard_save_aside(run_trainer *self, int64_t step, char *text, size_t capacity);

#endif
