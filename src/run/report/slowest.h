// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The slowest rank: computation waits least where all others wait for it.
#pragma once

#include "mics/core/agreement.h"
#include "mics/core/schedule.h"

enum {
    RUN_SLOWEST_STEPS = 20, // that means are of
    RUN_SLOWEST_MIN_MS = 5  // below which a wait is that of a system which shares out its cores
};

typedef struct run_slowest {
    double *waits;  // (ranks): parts of a step, means
    double step_ms; // mean
    int32_t steps;  // so far, up to RUN_SLOWEST_STEPS
    int32_t rank;   // the slowest; -1: not known yet
    double part;    // of a step that the others wait for it, mean
    bool told;      // of an episode
} run_slowest;

/* Takes a step of `step_us` and what ranks said in its agreement into account. A single long step counts
 * as any other.
 *
 * Needs:   waits of 0 before the first step.      Pure. */
void run_slowest_add(run_slowest *self, const mics_agreement *said, int32_t ranks, double step_us);

/* Whether to tell of `rank`: it is the slowest for the first time in an episode, with a part of at least
 * `warn`, of RUN_SLOWEST_MIN_MS or more. The episode ends where it is not, or at less than half of that part. */
bool run_slowest_tells(run_slowest *self, int32_t rank, double warn);
