// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The lowest validation loss of a run: which checkpoint stays (run.keep_best), and when there is
// nothing more to gain (run.stop_after_no_improvement).
//
// What a run has found so far stands in metrics.jsonl and nowhere else, so a run that resumes, or goes
// back to an older step, counts as one that was never disturbed. Of its validations those count that
// are due after a step. A run that resumes validates besides where it begins, which counts if it is
// due there and the run ended before it.
#ifndef MICS_RUN_SAVE_BEST_H
#define MICS_RUN_SAVE_BEST_H

#include "mics/config.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct run_trainer run_trainer;

typedef struct run_best {
    bool known;     // the rest is what the run has found so far
    int64_t newest; // step of the newest evaluation; 0: none yet
    int64_t step;   // of the lowest loss; 0: there is none
    double loss;    // that
    int64_t since;  // evaluations behind it
} run_best;

/* Whether the run can do what its keys ask for.    Returns: MICS_OK; MICS_ERR_INVALID, logged. Pure. */
mics_status run_best_check(const mics_run *run);

/* Counts an evaluation after `step`, if it is due there and is not that of `best->newest`. Pure. */
void run_best_count(run_best *best, const mics_run *run, int64_t step, double loss);

/* Reads what is known of the run up to the step that was done last.
 *
 * Returns: MICS_OK; what the broadcast returned.    Collective: over ranks. */
mics_status run_best_load(run_trainer *self);

/* After the validation of `step`: saves it if it is the best and the run keeps that, and at the run's
 * early end. Afterwards self->step is less than `step` if the run went back.
 *
 * Returns: MICS_OK; as run_guard_check and run_saving_begin.    Collective: over ranks. */
mics_status run_best_follow(run_trainer *self, int64_t step);

/* The same before training, after the validation of the step that the run goes on from: if that is due
 * there, and not known.
 *
 * Returns: as run_best_follow.    Collective: over ranks. */
mics_status run_best_begin(run_trainer *self);

/* Whether the run has ended early. The same on all ranks. */
bool run_best_ended(const run_trainer *self);

// ---- best_name.c ----

/* On rank 0, where the run begins: the file names the best as far as the run knows now. */
void run_best_name_again(const run_trainer *self);

/* A checkpoint of `step` is whole: on rank 0 it is named the best if it is. */
void run_best_saved(run_trainer *self, int64_t step);

#endif
