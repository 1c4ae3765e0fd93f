// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the first process says of a run before it starts: what it takes from files of others and from
// the run that it resumes, and what is done otherwise than somebody may have meant.
#pragma once

#include "job.h"
#include "run/ranks/cores.h"

/* Says it.
 *
 * Needs:   a job whose schedule and data are open.
 * Returns: MICS_OK; MICS_ERR_MEMORY, MICS_ERR_FORMAT, one line.
 */
mics_status run_announce(const mics_job *job);

/* Says where ranks on CPUs have more threads than cores, and where a launcher keeps cores from them.
 *
 * Needs:   cores as run_cores_read gives them.
 */
void run_announce_cores(const mics_job *job, const run_cores *cores);
