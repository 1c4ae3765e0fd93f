// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Judges a step: finds out what guard.h decides by, and says what it found.
#pragma once

#include "context.h"
#include "guard.h"
#include "mics/core/agreement.h"

enum { RUN_JUDGE_TEXT_BYTES = 1024 };

typedef struct run_judge {
    const run_context *context;
    run_rules rules;
    mics_checkpoint_losses recent; // of good steps; a part of the state: saved and loaded with it
    run_evidence known;            // of the step that is being judged
    mics_divergence found;         // RUN_GO_BACK: between replicas
    mics_agreement *first;         // by rank: of a step before it is run again
    char first_says[RUN_JUDGE_TEXT_BYTES];
} run_judge;

/* Begins, with the engine open; `recent` stays. Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status run_judge_open(run_judge *judge, const run_context *context);
void run_judge_close(run_judge *judge);

/* What the engine may train in the next attempt at a step. */
mics_step_limits run_judge_limits(const run_judge *judge);

/* Judges an attempt at a step by its result. `impossible`: the engine says MICS_ERR_NUMERIC of it.
 *
 * action_out: RUN_ACCEPT, RUN_HOLD, RUN_RECHECK, RUN_RETAKE or RUN_GO_BACK.
 * Returns:    MICS_OK; MICS_ERR_NUMERIC: the run is to end, as rank 0 has logged; the same on all
 *             ranks; what a collective returned.      Collective: over ranks. */
mics_status run_judge_step(run_judge *judge, int64_t step, const mics_step_result *result,
                           bool impossible, run_action *action_out);
