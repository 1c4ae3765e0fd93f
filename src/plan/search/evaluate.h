// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long a choice's step takes.
#pragma once

#include "plan/search/probe.h"

/* How long a step takes, the inter-node bytes that it sends, and the schedule's ledger.
 * inter_bytes_out is below 0 where not all of the step was simulated. */
mics_status time_choice(mics_planner *planner, const mics_plan_choice *choice, double *step_us_out,
                        double *inter_bytes_out, mics_memory_ledger *ledger_out);

/* Fills what follows from step_us, tokens and FLOPs. */
void fill_rates(const mics_planner *planner, mics_plan_entry *entry);
