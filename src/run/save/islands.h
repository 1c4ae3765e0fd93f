// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A checkpoint's state for the islands of a run (mics_outer): as many as saved it, or others where they
// had agreed.
#pragma once

#include "run/context.h"

/* Whether the run can resume from job->checkpoint: its islands are as many, and meet in the same steps,
 * or they had all met.
 *
 * Needs:   the schedule.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged with the steps and islands that would work.
 */
mics_status run_islands_check(const mics_job *job);

/* Fills this rank's optimizer shards, moments included, anchors and what else meetings keep, and uploads
 * them; then call mics_engine_complete. Rank 0 notes where islands are others than those that saved.
 *
 * Needs:   what run_islands_check and mics_engine_upload need.
 * Returns: MICS_OK; what reading returned; MICS_ERR_NUMERIC: a number is not finite.
 * Threads: any, on one checkpoint.    Collective: no.
 */
mics_status run_islands_fill(const run_context *context, const mics_checkpoint *checkpoint,
                             const mics_work_listener *listener);
