// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How far plans were off published trainings, by kind of run.
#pragma once

#include "plan/offers/planning.h"

/* The kind that a plan is nearest to: of its precision before what ranks share beside data, before its
 * chip. *same_out says whether it is that kind itself.
 *
 * Returns: one of a table; never NULL.      Threads: any.
 */
const mics_plan_kind *kind_find(const mics_plan *plan, bool *same_out);
