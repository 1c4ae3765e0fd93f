// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One plan for each number of nodes.
#pragma once

#include "plan/tables/tables.h"

void plan_table_sweep(printer *report, const mics_plan *plan, const mics_plan_sweep *sweep,
                      const mics_plan_goal *goal, bool wide);
