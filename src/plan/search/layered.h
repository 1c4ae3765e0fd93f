// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Layered micro-steps of a choice.
#pragma once

#include "plan/search/probe.h"

/* The choice's micro-batches in flight by mics_layered_auto, or the most below that which fit. */
mics_status layered_by_rule(mics_planner *planner, const mics_plan_choice *choice,
                            int32_t *number_out);

/* Whether the search also tries all micro-steps at once: they are not listed anyway, few enough to
 * be simulated, not added too often in 16 bits, and their activations are not beyond the memory. */
mics_status tries_all_layered(mics_planner *planner, const mics_plan_choice *choice,
                              bool *tries_out);
