// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Cores that a launcher left to each rank of a machine: its own, or some that several share.
#pragma once

#include "world.h"
#include <sched.h>

/* The cores that one of a machine's ranks has, by the masks of them all: its mask's, each divided
 * by the ranks that may use it; rounded down, at least 1. Ranks with the same cores have an equal
 * share of them, ranks with cores of their own have these.
 *
 * Returns: 0 where a mask is empty, which stands for one that is not known.
 */
int32_t run_cores_share(const cpu_set_t *masks, int32_t ranks, int32_t rank);

/* The same for this process' rank, under MPI; no more than its share of the control group's quota.
 *
 * cores_out: 0 where ranks are threads of one process, and where a mask is not known.
 * Returns: MICS_OK; MICS_ERR_MEMORY, MICS_ERR_IO, on all processes.   Collective: over processes,
 *          before run_world_run.
 */
mics_status run_cores_read(run_world *world, mics_memory *memory, int32_t *cores_out);
