// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The base of a run that trains a part of its model: frozen parameters, which no checkpoint holds.
// They are those of model.init, or drawn as at the start, and their hash is kept.
#pragma once

#include "run/context.h"

/* Logs that a checkpoint's base had another hash than the one that is there.
 * Returns: MICS_ERR_INVALID. */
mics_status run_base_differs(const char *checkpoint, uint64_t before, const char *base,
                             uint64_t hash);

/* Whether a run has any. Pure. */
bool run_base_is_frozen(const mics_model *model);

/* Fills a rank's parameter shards from model.init's weights, or draws them: all of them, or frozen
 * ones alone; adapters' are those of adapter.init, or drawn. Then call mics_engine_upload. What
 * counts of the rank's hash is in context->rank->base_hash, until run_base_settle. Does nothing where
 * a run goes on and the weights are not there.
 *
 * Returns: as run_import_fill.     Collective: no.
 */
mics_status run_base_fill(const run_context *context, bool frozen_alone);

/* Gives ranks that have no weights of model.init the frozen parameters of ranks that hold the same.
 * Then sums up the ranks' hashes, and compares them with what the base was before: that of the
 * checkpoint that the run resumes from (0: nothing is known).
 *
 * Needs:   behind run_base_fill on all ranks, and before mics_engine_release.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: it is another base, or no rank has some of it; what
 *          exchanging returned.     Collective: over the world.
 */
mics_status run_base_settle(const run_context *context);
