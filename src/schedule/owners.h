// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Who makes which matrix orthogonal (owners.c). Private to this module.
#pragma once

#include "mics/core/schedule.h"

/* Fills a schedule's rounds and matrices, from its units' lengths and sharding. Appends to members.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY. */
mics_status find_owners(mics_schedule *schedule);

/* FLOPs of an owner in the round of a unit that has one. */
double owner_flops(const mics_schedule *schedule, int32_t unit, int32_t owner);

/* Whether the invariants hold.   Returns: MICS_OK; MICS_ERR_INVALID, logged. */
mics_status check_owners(const mics_schedule *schedule);
