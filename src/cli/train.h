// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What mics train prints around a job: summary.c.
#pragma once

#include "mics/report.h"
#include "mics/run.h"

/* Before training: what is trained, on what, and what it will take. For the first process. */
void cli_print_beginning(const mics_job *job);

/* What the model wrote after a step, as the display's lines. */
void cli_print_sample_of_step(mics_progress *progress, int64_t step, const char *text,
                              size_t bytes);

/* After training: losses, a sample of text, predicted against measured, and where everything is.
 * For the first process.
 */
mics_status cli_print_end(mics_memory *memory, const mics_job *job);

/* What came of it as one JSON object. `stopped`: by what before its end; NULL: by nothing. */
void cli_print_end_json(const mics_job *job, const char *stopped);
