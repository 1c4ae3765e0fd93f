// SPDX-FileCopyrightText: The mics authors
// Steps of a list, and what they wait for.
#pragma once

#include "schedule/builder.h"

mics_status add_step(builder *b, mics_step step, int32_t *index_out);

/* Makes a step wait for another, if that is on another stream (-1: none): a stream is in order. */
void wait_on(const builder *b, mics_step *step, int32_t index);
void wait_on_all(const builder *b, mics_step *step, const int32_t last[MICS_STREAMS]);

/* Makes a pass wait for the copies of activations that it needs: forward for that of the block whose
 * place it takes, backward for that of its own. */
void wait_for_copies(const builder *b, pass p, mics_step *step);

/* Lists what is copied directly behind a pass: forward's block to host memory, or back the one that
 * forward displaced. */
mics_status list_copy(builder *b, pass p);

mics_step blank_step(mics_step_kind kind, int32_t unit, int32_t micro_step);
