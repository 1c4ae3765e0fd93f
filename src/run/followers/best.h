// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The lowest validation loss of a run: which checkpoint stays (run.keep_best), and when there is
// nothing more to gain (run.stop_after_no_improvement).
//
// What a run has found so far stands in metrics.jsonl and nowhere else, so a run that resumes, or goes
// back to an older step, counts as one that was never disturbed. Of its validations those count that
// are due after a step. A run that resumes validates besides where it begins, which counts if it is
// due there and the run ended before it.
#pragma once

#include "follower.h"

// What a run has found so far.
typedef struct run_best_record {
    int64_t newest; // step of the newest evaluation; 0: none yet
    double last;    // its loss
    int64_t step;   // of the lowest loss; 0: there is none
    double loss;    // that
    int64_t since;  // evaluations behind it; of local steps those of parameters that had changed
} run_best_record;

typedef struct run_best {
    const run_context *context;
    bool known; // `found` is what the run has found so far
    run_best_record found;
    int64_t counted; // the newest step whose validation counted
} run_best;

/* Whether the run can do what its keys ask for.    Returns: MICS_OK; MICS_ERR_INVALID, logged. Pure. */
mics_status run_best_check(const mics_run *run);

/* Counts an evaluation after `step`, if it is due there and is not that of `best->newest`. Pure. */
void run_best_count(run_best_record *best, const mics_run *run, int64_t step, double loss);

/* Whether the run has ended early. The same on all ranks. */
bool run_best_stops_early(const run_best *self);
