// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What is known of a choice before its schedule is made.
#pragma once

#include "plan/search/plan.h"

/* Bytes a rank of a choice without making its schedule: equal to the ledger's total where
 * nothing is compressed or meets and no units share messages, else not above it.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID, logged; MICS_ERR_MEMORY.
 */
mics_status mics_planner_memory(mics_planner *planner, const mics_plan_choice *choice,
                                double *bytes_out);

/* Micro-batches in flight that a training takes where its run file leaves it open: those of
 * mics_layered_auto, or the most below that which fit. choice->layered_micro_steps does not count.
 *
 * Returns: as mics_planner_memory.
 */
mics_status mics_planner_layered(mics_planner *planner, const mics_plan_choice *choice,
                                 int32_t *number_out);

/* A time that a choice's step cannot fall below, in us; as mics_planner_memory.
 *
 * Units:   us.
 * Returns: as mics_planner_memory.
 */
mics_status mics_planner_bound(mics_planner *planner, const mics_plan_choice *choice,
                               double *us_out);
