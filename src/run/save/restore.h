// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The state that a rank begins with; of a run that resumes from the newest checkpoint that is good on
// every rank.
#pragma once

#include "run/context.h"

/* Fills this rank's optimizer shards and loss scale from a checkpoint, with the losses before it; NULL:
 * with what the run begins with. Needs what mics_engine_upload does. Returns: as it; what reading
 * returned. */
mics_status run_restore_fill(const run_context *context, const mics_checkpoint *checkpoint,
                             mics_checkpoint_losses *recent_out);

/* The same from the job's checkpoint. If that was the newest (job->resumes_newest) and is damaged on
 * some rank, or has numbers that are not finite, the next older one takes its place on all, with
 * job->start_step and the rank's progress.
 *
 * Returns: MICS_OK; as run_job_open_newest (newest.h); MICS_ERR_NUMERIC. The caller agrees on it.
 * Collective: over ranks, before the engine has run.
 */
mics_status run_restore(const run_context *context, mics_checkpoint_losses *recent_out);
