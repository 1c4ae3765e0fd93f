// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Steps of meetings (mics_outer).
#pragma once

#include "schedule/builder.h"

/* Makes a list begin with no meeting under way. */
void reset_meetings(builder *b);

/* Meetings of `count` units (NULL: of the first ones) whose masters are as the step before left them:
 * changes; with no overlap all the rest too, whose end `updated` then is. */
mics_status list_meetings(builder *b, const int32_t *units, int32_t count);

/* Before pass number `index`, or behind the last: what runs beside computation and is to begin by now. */
mics_status list_meetings_beside(builder *b, int32_t index);

/* Behind the agreement: masters become what overlapped meetings made. */
mics_status list_adoptions(builder *b, int32_t agree);
