// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies of the state in node memory, made while a run trains (run.memory_checkpoint_every), or for
// who has no time to save to disk. One that fails is a warning: training goes on, and the copy
// before it counts.
#ifndef MICS_RUN_FOLLOWERS_COPIES_H
#define MICS_RUN_FOLLOWERS_COPIES_H

#include "follower.h"
#include "run/node_memory/copy.h"

/* Makes a copy of the step that was done last, due or not.
 *
 * kept_out: whether it counts, alike on all ranks.
 * Returns:  MICS_OK; what a collective returned.     Collective: over ranks. */
mics_status run_copies_stop(run_copies *self, bool *kept_out);

/* Notes that a copy of that step is whole on all nodes. */
void run_copies_keep(run_copies *self);

#endif
