// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// run.collectives "auto": whether gathers run in one ring or in two stages, by a short timing of both.
//
// Gathers alone are chosen: the order of a sum decides its bits, which must not depend on a clock. What
// was chosen stands in resolved.json, so a run that goes on keeps it.
#pragma once

#include "mics/core/schedule.h"
#include "mics/status.h"
#include "run/ranks/world.h"
#include <stdbool.h>
#include <stddef.h>

struct mics_job;

// What one gather takes on the slowest rank: medians of a few, microseconds.
typedef struct run_gather_times {
    double ring_us;
    double two_stage_us; // of the slower stage, as those of consecutive units overlap
    size_t bytes;        // that each gathered
    double took_s;       // the timing itself
} run_gather_times;

/* Times gathers of a schedule's largest unit both ways, on the rank's device: up to 16 MiB of it, as
 * larger ones take as much longer either way.
 *
 * Needs:   a schedule whose gathers run in two stages; a comm that no engine uses, whose device takes
 *          collectives over the whole partition group too.
 * Returns: MICS_OK, and the same times on all ranks; MICS_ERR_MEMORY, agreed on; as
 *          mics_comm_collective; MICS_ERR_TIMEOUT, MICS_ERR_DEVICE: the caller ends the world.
 * Collective: world.   Blocks: yes.
 */
mics_status run_gathers_time(run_rank *rank, const mics_schedule *schedule, double timeout_s,
                             run_gather_times *times_out);

/* Whether one ring is faster by more than times differ from run to run. Pure. */
bool run_gathers_prefer_ring(const run_gather_times *times);

/* Whether the timing is due: "auto", and gathers in two stages. Pure. */
bool run_collectives_is_open(const struct mics_job *job);

/* Makes the job's schedule again, with gathers in one ring.
 *
 * Needs:   a schedule of job->model, which nobody uses.
 * Returns: MICS_OK; as mics_schedule_open and run_check_memory.
 */
mics_status run_collectives_take_rings(struct mics_job *job);

/* Settles run.collectives before training, where that is open: times gathers, makes the schedule again
 * where one ring is faster, and writes resolved.json with what was chosen. Rank 0 says it in one line.
 *
 * Needs:   the schedule, and the output folder; no engine.
 * Returns: MICS_OK; as run_gathers_time; MICS_ERR_IO.
 * Collective: over processes.
 */
mics_status run_collectives_settle(struct mics_job *job);
