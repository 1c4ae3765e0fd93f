// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How long a choice's step takes.
#pragma once

#include "plan/search/probe.h"

/* How long a step takes, and the schedule's ledger (ledger_out may be NULL). */
mics_status time_choice(mics_planner *planner, const mics_plan_choice *choice, double *step_us_out,
                        mics_memory_ledger *ledger_out);

/* Fills what follows from step_us, tokens and FLOPs. */
void fill_rates(const mics_planner *planner, mics_plan_entry *entry);
