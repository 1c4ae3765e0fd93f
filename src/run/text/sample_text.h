// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts that the model writes while it trains (run.sample_every).
#ifndef MICS_RUN_TEXT_SAMPLE_TEXT_H
#define MICS_RUN_TEXT_SAMPLE_TEXT_H

#include "mics/status.h"
#include <stdint.h>

typedef struct run_trainer run_trainer;

/* Writes a text after `step` if one is due: saves the step, and rank 0 draws the text from the
 * checkpoint while the others wait. A text that cannot be drawn is a warning, and the last that is
 * tried; a step that cannot be saved has none. Afterwards self->step is less than `step` if the run went back.
 *
 * Returns: MICS_OK; as run_guard_check and run_saving_begin.     Collective: over ranks. */
mics_status run_sample_follow(run_trainer *self, int64_t step);

/* The same of the step that the run goes on from, if it ended before the text that was due there.
 *
 * Returns: as run_sample_follow; what a collective returned.     Collective: over ranks. */
mics_status run_sample_make_up(run_trainer *self);

#endif
