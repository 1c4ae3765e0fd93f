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

typedef struct run_cores {
    int32_t own;     // of this process' rank, no more than its share of the control group's quota
    int32_t bound;   // that ranks of this machine may use, all together
    int32_t machine; // that it has, or the quota
} run_cores;

/* The same for this process' rank, under MPI.
 *
 * cores_out: zeros where ranks are threads of one process, and where a mask is not known.
 * Returns: MICS_OK; MICS_ERR_MEMORY, MICS_ERR_IO, on all processes.   Collective: over processes,
 *          before run_world_run.
 */
mics_status run_cores_read(run_world *world, mics_memory *memory, run_cores *cores_out);
