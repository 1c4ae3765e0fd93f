// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a rank begins with.
#ifndef MICS_RUN_SAVE_FILLING_H
#define MICS_RUN_SAVE_FILLING_H

#include "run/context.h"

/* Fills this rank's optimizer shards and loss scale from a checkpoint, with the losses before it;
 * without one with what the run begins with. Needs what mics_engine_upload does. Returns: as it; what
 * reading returned. */
mics_status run_filling_state(const run_context *context, const mics_checkpoint *checkpoint,
                              mics_checkpoint_losses *recent_out);

#endif
