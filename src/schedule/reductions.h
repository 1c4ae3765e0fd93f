// SPDX-FileCopyrightText: The mics authors
// The first hop.
#pragma once

#include "schedule/builder.h"

/* Notes which slots a step uses. */
void mark_slots(builder *b, const mics_step *step, int32_t index);

/* Sums one unit's gradient slot, which has those of a layered group, into the accumulator; the
 * unit's second hop behind that of the last micro-step. An inter-node stage is left for
 * list_late_reductions. */
mics_status list_reduction(builder *b, int32_t unit, pass p);

/* Lists the stages that were left. */
mics_status list_late_reductions(builder *b);
