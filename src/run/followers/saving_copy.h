// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Copies in node memory of a rank that trains, for saving.c: between steps, and while a save is waited
// for. All are collective over ranks, but for what is read of the engine.
#pragma once

#include "saving.h"

static inline run_save *save_of(run_saving *self, int which)
{
    return &self->saver.saves[which];
}

/* Has what a save reads on the host until run_saving_release. Returns: as mics_engine_download. */
mics_status run_saving_hold(run_saving *self);
void run_saving_release(run_saving *self);

/* Makes a copy of the step that was done last. *kept_out: whether it counts, alike on all ranks. A save
 * that is under way goes on beside it. run_saving_copy_between sets the time limits, too.
 * Returns: MICS_OK, also where some rank could not; MICS_ERR_NUMERIC; what a collective returned. */
mics_status run_saving_copy(run_saving *self, bool to_stop, bool *kept_out);
mics_status run_saving_copy_between(run_saving *self, bool to_stop, bool *kept_out);

/* Takes over what keepers have made in the middle of a step: *kept_out, alike on all ranks, and on this
 * one *lost_out: the others do not come. Returns: what a collective returned. */
mics_status run_saving_take_copy(run_saving *self, bool *kept_out, bool *lost_out);

/* Whether the step that was done last is on disk, or in node memory. */
bool run_saving_is_safe(const run_saving *self);

/* Makes a copy if a stop leaves half of its time, and the state may be kept (`keeps`), once a step.
 * Returns: as run_saving_copy. */
mics_status run_saving_copy_at_half(run_saving *self);
