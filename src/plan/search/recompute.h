// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How much is recomputed, so that a choice just fits.
#pragma once

#include "plan/search/probe.h"

/* Of the forms at one end of the layers the one with the least computation among those that just fit:
 * for each of what layers can make again in parts, the fewest layers that are recomputed whole.
 *
 * Needs:   choice without recomputation, which takes `bytes`.
 * Returns: MICS_OK; `found_out` false: none fits; MICS_ERR_MEMORY. */
mics_status least_recompute(mics_planner *planner, const mics_plan_choice *choice, double bytes,
                            bool last, mics_recompute *recompute_out, bool *found_out);
