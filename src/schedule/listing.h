// SPDX-FileCopyrightText: The mics authors
// Steps of a list, and what they wait for.
#pragma once

#include "schedule/builder.h"

mics_status add_step(builder *b, mics_step step, int32_t *index_out);

/* Makes a step wait for another, if that is on another stream (-1: none): a stream is in order. */
void wait_on(const builder *b, mics_step *step, int32_t index);
void wait_on_all(const builder *b, mics_step *step, const int32_t last[MICS_STREAMS]);

mics_step blank_step(mics_step_kind kind, int32_t unit, int32_t micro_step);
