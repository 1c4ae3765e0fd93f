// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where blocks of activations lie. Private to this module.
#pragma once

#include "mics/core/schedule.h"

/* Places the units' blocks of kept_elems, in the arena and in host memory, and in them inputs: each
 * unit's output is the next one's input. Returns where those of a micro-batch in flight end.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (more units in host memory than can be; logged).
 */
mics_status place_blocks(mics_schedule *schedule, int64_t *end_out);
