// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The base of a run that trains a part of its model: frozen parameters, which no checkpoint holds.
// They are those of model.init, or drawn as at the start, and their hash is kept.
#pragma once

#include "run/context.h"

/* Whether a run has any. Pure. */
bool run_base_is_frozen(const mics_model *model);

/* Fills a rank's parameter shards from model.init's weights, or draws them: all of them, or frozen
 * ones alone; adapters' are drawn. Then call mics_engine_upload. What counts of the rank's hash is
 * in context->rank->base_hash, until run_base_check.
 *
 * Returns: as run_import_fill.     Collective: no.
 */
mics_status run_base_fill(const run_context *context, bool frozen_alone);

/* Sums up the ranks' hashes, and compares them with what the base was before: that of the checkpoint
 * which the run goes on from (0: nothing is known).
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: it is another base.     Collective: over the world.
 */
mics_status run_base_check(const run_context *context);
