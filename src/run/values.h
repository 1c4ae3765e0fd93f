// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run that a program describes in C.
#pragma once

#include "run/job.h"

/* A run from what was filled in C. Returns: as mics_run_load. */
mics_status run_values_load(mics_memory *memory, const mics_run_values *values,
                            const char *const *sets, int32_t set_count, mics_run **run_out);
