// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Layered micro-steps of a choice.
#pragma once

#include "plan/search/probe.h"

/* The choice's micro-batches in flight by mics_layered_auto, or the most below that which fit. */
mics_status layered_by_rule(mics_planner *planner, const mics_plan_choice *choice,
                            int32_t *number_out);

enum { MAX_LAYERED_NUMBERS = 7 };

/* Layered micro-steps that the search tries: 1, 2, 4, 8 in groups as even as can be; all; over several
 * nodes the most that fit into `limit_bytes`. At most 8 where they would be added too often in 16 bits;
 * groups are even where there are too many to be simulated. */
mics_status layered_numbers(mics_planner *planner, const mics_plan_choice *choice,
                            double limit_bytes, int32_t numbers_out[MAX_LAYERED_NUMBERS],
                            int32_t *count_out);
