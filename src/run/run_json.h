// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The resolved run as JSON.
#pragma once

#include "run/job.h"

/* The resolved run as a run file that gives the same run again. The caller frees *text_out with
 * mics_free. */
mics_status run_run_text(mics_memory *memory, const mics_run *run, char **text_out);
