// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The search over choices.
#pragma once

#include "plan/search/probe.h"

/* Of a space's choices for one sharding the one with the least memory. */
mics_status least_memory(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice *choice_out, double *bytes_out);

enum { MAX_OFFLOAD_BASES = MICS_PLAN_MAX_PREFETCH + 1, MAX_OFFLOAD_WAYS = 8 * MAX_OFFLOAD_BASES };

/* What is worth a look with activations in host memory, as few units as fit, in place of the
 * *count_io choices that fit themselves; 0: nothing does, and ways_io[0] has the least memory. None
 * where the space or the device does not allow it. */
mics_status list_offload(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice ways_io[MAX_OFFLOAD_WAYS], int32_t *count_io);
