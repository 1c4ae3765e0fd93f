// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Texts that the model writes while it trains (run.sample_every): rank 0 draws one from the step's
// checkpoint, while the others wait. A text that cannot be drawn is a warning, and the last that is
// tried; a step that cannot be saved has none.
#pragma once

#include "follower.h"

typedef struct run_texts {
    const run_context *context;
    bool failed;      // one could not be written
    int64_t left_out; // the step that training begins behind, if its text is due and was left out
} run_texts;

/* Whether a finished run is opened again as it was killed before the text behind its last step. One
 * that cannot be drawn is tried once more with each start, but no run is opened for one that was never
 * drawn. */
bool run_texts_lack_last(const mics_job *job);
