// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a job was resolved to, for the program's own summaries; users have it in resolved.json.
#pragma once

#include "config/config.h"
#include "mics/run.h"

/* The run as resolved: sharding, batch and prefetch are those that run.
 *
 * Returns: never NULL.    Owns: it is the job's.
 */
const mics_run *mics_job_run(const mics_job *job);
