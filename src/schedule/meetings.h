// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Meetings of units that islands train for themselves (mics_outer).
#pragma once

#include "schedule/builder.h"

/* Offsets of units in the period, and places in the arena of MICS_MEM_OUTER. Nothing without local
 * steps, or of evaluations.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 */
mics_status place_meetings(mics_schedule *schedule);

/* What meets of a unit: its masters and, where they meet, the optimizer's states; 0: nothing. Pure. */
int32_t meeting_states(const mics_schedule *schedule, int32_t unit);

/* Makes a list begin with no meeting under way. */
void reset_meetings(builder *b);

/* Meetings of `count` units (NULL: of the first ones) whose masters are as the step before left them:
 * changes; with no overlap all the rest too, whose end `updated` then is. */
mics_status list_meetings(builder *b, const int32_t *units, int32_t count);

/* Before pass number `index`, or behind the last: what runs beside computation and is to begin by now. */
mics_status list_meetings_beside(builder *b, int32_t index);

/* Behind the agreement: masters become what overlapped meetings made. */
mics_status list_adoptions(builder *b, int32_t agree);
