// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Computation of a list, and what becomes of a step.
#ifndef MICS_ENGINE_COMPUTE_STEPS_H
#define MICS_ENGINE_COMPUTE_STEPS_H

#include "engine/internal.h"

mics_status run_compute_step(mics_engine *engine, const mics_step *step);

/* Runs each GEMM of a step once (mics_engine_autotune). */
void autotune_gemms(mics_engine *engine);

/* Concludes from the step's agreement, which is done, what becomes of it: fills the result, and
 * engine->pending of a step that updates.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC on every rank. */
mics_status settle_step(mics_engine *engine);

/* Takes the mean loss of an evaluation's batch, once AGREE is done, into the result.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC on every rank, logged by rank 0. */
mics_status settle_evaluation(mics_engine *engine);

/* Logs what the newest training step's verdict means, on rank 0.    Returns: MICS_ERR_NUMERIC. */
mics_status fail_verdict(const mics_engine *engine);

#endif
