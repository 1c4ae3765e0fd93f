// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Meetings of units that islands train for themselves (mics_outer).
#pragma once

#include "mics/core/schedule.h"

/* Offsets of units in the period, and places in the arena of MICS_MEM_OUTER. Nothing without local
 * steps, or of evaluations.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 */
mics_status place_meetings(mics_schedule *schedule);

// What meets of a unit: its masters, and states of the optimizer.
enum { MEETING_STATES = 1 + MICS_OPTIMIZER_STATES };

/* How much meets of a unit: its masters and, where they meet, the optimizer's states; 0: nothing.
 * Pure. */
int32_t meeting_states(const mics_schedule *schedule, int32_t unit);
