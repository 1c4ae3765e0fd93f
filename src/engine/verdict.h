// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The verdict on a step: taken, left out, or bad.
#pragma once

#include "engine/internal.h"

/* Concludes from the step's agreement, which is done, what becomes of it: fills the result, and
 * engine->pending of a step that updates.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC on every rank. */
mics_status settle_step(mics_engine *engine);

/* Takes the mean loss of an evaluation's batch, once AGREE is done, into the result.
 *
 * Returns: MICS_OK; MICS_ERR_NUMERIC on every rank, logged by the first one of an island. */
mics_status settle_evaluation(mics_engine *engine);

/* Logs what the newest training step's verdict means, on the first rank of the island.    Returns: MICS_ERR_NUMERIC. */
mics_status fail_verdict(const mics_engine *engine);
