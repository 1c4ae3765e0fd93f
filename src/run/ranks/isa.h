// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which instruction set the CPU's kernels are of: the best that all machines of a run have, so that
// its ranks compute alike.
#pragma once

#include "mics/status.h"

typedef struct mics_job mics_job;

/* Sets job->kernels, and keeps the matrix library to them. The environment variable MICS_ISA stands
 * for a machine that has no more than that.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID: MICS_ISA names none that this machine runs;
 *          MICS_ERR_UNSUPPORTED: as mics_gemm_limit. Logged by one process.
 * Collective: over processes, before run_world_run.
 */
mics_status run_isa_settle(mics_job *job);
