// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The two forms of what mics explain prints.
#ifndef MICS_CLI_EXPLAIN_H
#define MICS_CLI_EXPLAIN_H

#include "job.h"

/* Prints for people; a schedule that is long only in part unless `all_steps`. Needs a job with its
 * plan open. */
void cli_explain_text(const cli_job *job, bool all_steps);

/* Prints one JSON object. */
void cli_explain_json(const cli_job *job);

#endif
