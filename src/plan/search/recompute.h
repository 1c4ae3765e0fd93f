// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many layers are recomputed whole, so that a choice just fits.
#pragma once

#include "plan/search/probe.h"

/* The fewest layers at the end that choice->recompute says, beside what it says of the others;
 * choice->recompute.units does not count.
 *
 * Returns: MICS_OK; `units_out` -1: it does not fit with all; MICS_ERR_MEMORY. */
mics_status fewest_units(mics_planner *planner, const mics_plan_choice *choice, int32_t *units_out);
