// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Checks of what a schedule is asked for. Private to this module.
#pragma once

#include "mics/core/schedule.h"

/* Refuses what cannot be scheduled, with a line that says why; after it no sum or product of sizes
 * can overflow.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, MICS_ERR_UNSUPPORTED.
 */
mics_status check_schedule_spec(const mics_schedule_spec *spec);
