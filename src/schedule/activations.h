// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Places every activation and every activation gradient of a model in one arena. Private to this
// module.
#pragma once

#include "mics/core/schedule.h"

/* Fills schedule->units and schedule->activation_elems from schedule->spec. On failure the caller
 * closes the schedule. */
mics_status place_activations(mics_schedule *schedule);

/* Places the units' blocks of kept_elems, in the arena and in host memory, and in them inputs: each
 * unit's output is the next one's input. Returns where those of a micro-batch in flight end, or
 * MICS_ERR_INVALID (more units in host memory than can be; logged). */
mics_status place_blocks(mics_schedule *schedule, int64_t *end_out);
