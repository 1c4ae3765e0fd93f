// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The search over choices.
#pragma once

#include "plan/search/probe.h"

/* Of a space's choices for one sharding the one with the least memory. */
mics_status least_memory(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice *choice_out, double *bytes_out);
