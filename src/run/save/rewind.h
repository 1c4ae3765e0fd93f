// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Going back to an older state. The other replicas have trained with the odd one's gradients since
// the newest state that agreed, so only going back gives the bits of an undisturbed run.
#pragma once

#include "run/context.h"

// Where a state comes from that is good as far as anybody knows.
typedef struct run_source {
    int64_t step;
    char path[RUN_PATH_BYTES]; // of a checkpoint; "": what the run began with, or node memory
    bool in_memory;            // the copy that was found there (node_memory.h)
    int32_t next_slot;         // of that copy: the one that it does not lie in
} run_source;

/* The newest such state that is not in node memory. Returns: false: there is none. */
bool run_rewind_newest_saved(const run_context *context, run_source *source_out);

/* Loads the newest state that can be read, on all ranks alike: this rank's optimizer shards, what
 * recent_out says, and the scaler, where the state has none `scaler`. Checkpoints that could not be
 * read count as none from now on.
 *
 * Returns: MICS_OK; MICS_ERR_IO: there is none, logged; as mics_engine_agree. Collective: over ranks. */
mics_status run_rewind_load(const run_context *context, const mics_scaler *scaler,
                            mics_checkpoint_losses *recent_out, run_source *source_out);

/* Ends the run for what was found: on rank 0 with the newest state that agreed.
 * Returns: MICS_ERR_NUMERIC. */
mics_status run_rewind_fail(const run_context *context, const char *what, const char *then);
