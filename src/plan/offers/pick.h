// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run takes of what its file leaves open: as training does it, and as mics plan says it does.
#pragma once

#include "config/config.h"
#include "plan/search/plan.h"

/* Whether a resolved run leaves sharding, micro-batch or recomputation to the planner. */
bool offers_is_open(const mics_run *run);

/* Searches for what the run file leaves open. min_replicas above 0: in place of the run's.
 *
 * Returns and Owns: as mics_planner_search.
 */
mics_status offers_search(mics_planner *planner, const mics_run *run, int32_t min_replicas,
                          mics_plan_result **result_out);

/* What training takes of that: of those that are within 1 % of the fastest what sends the fewest
 * inter-node bytes; where nothing fits what lacks the least. Pure. */
const mics_plan_entry *offers_pick(const mics_plan_result *result);
