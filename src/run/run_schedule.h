// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The schedule of what a run says.
#pragma once

#include "run/sizing.h"

/* The schedule of what the run says now. Returns and Owns: as run_schedule_open. */
mics_status run_schedule_make(mics_memory *memory, const mics_run *run, const mics_model *model,
                              const run_budget *budget, mics_schedule **schedule_out);

/* Whether a run saves while it trains. Pure. */
bool run_saves_behind(const mics_run *run);

/* What saves take that do not stop training, where a schedule leaves room for it: 0, none. */
size_t run_save_copy_room(const mics_run *run, const mics_schedule *least,
                          const run_budget *budget);
