// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Layered micro-steps of a run.
#pragma once

#include "run/sizing.h"

/* Chooses run->layered_micro_steps for the run's sharding, whose *schedule has one micro-batch in
 * flight and is made anew. What a checkpoint has (run->layered_kept) stays where it fits at all;
 * what the rule gives, where it also leaves room for saves beside the steps. Returns: as run_schedule_open; *schedule may be NULL then. */
mics_status run_layered_choose(mics_memory *memory, mics_run *run, const mics_model *model,
                               const run_budget *budget, mics_schedule **schedule,
                               mics_layered_choice *choice_out);

/* A warning where memory made it fewer. */
void run_layered_warn(const mics_run *run, const mics_layered_choice *choice,
                      const mics_schedule *schedule, const run_budget *budget);
