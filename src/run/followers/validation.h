// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Validation: where training begins, every run.validate_every steps, and at the run's end. It reads
// validation_batches global batches, always the same ones.
#pragma once

#include "follower.h"
#include "run/batches.h"

typedef struct run_validation {
    const run_context *context;
    run_batches batches;
    double loss_first, loss_last;                    // NaN: none
    mics_preference_metrics pairs_first, pairs_last; // of the same
} run_validation;

/* Finds the loss.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID: no token counts; as mics_engine_eval. Collective: over ranks. */
mics_status run_validation_find_loss(run_validation *self, double *loss_out);

/* Whether a run that goes on from `step`, by what its reports say, was killed before its validation.
 * Where they cannot be read nothing counts as left out. */
bool run_validation_is_left_out(const mics_job *job, int64_t step);
