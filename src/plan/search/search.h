// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The search over choices.
#pragma once

#include "plan/search/probe.h"

/* Of a space's choices for one sharding the one with the least memory. */
mics_status least_memory(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice *choice_out, double *bytes_out);

enum { MAX_OFFLOAD_WAYS = 6 };

/* A choice, and with the next two larger micro-batches, with and without recomputation: where any
 * activations must be in host memory to fit, with as few as do. */
mics_status list_offload(mics_planner *planner, const mics_plan_space *space,
                         const mics_plan_choice *base, mics_plan_choice ways_out[MAX_OFFLOAD_WAYS],
                         int32_t *count_out);
