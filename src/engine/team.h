// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Threads that do one piece of work together, stage by stage. A wait spins for some microseconds and
// then sleeps, so that a stage costs little on idle cores, and waiting threads leave busy cores to
// others. OpenMP's settings have no say.
#pragma once

#include "base/shares.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdint.h>

typedef struct mics_team mics_team;

// The function of each thread; `thread` counts from 0.
typedef void (*mics_team_work)(void *ctx, int32_t thread);

/* Opens a team of the calling thread and threads - 1 others, which take no signals.
 *
 * Needs:   threads >= 1.
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged: there is no memory for so many.
 * Owns:    close with mics_team_close.
 */
mics_status mics_team_open(mics_memory *memory, int32_t threads, mics_team **team_out);

/* Closes; NULL is allowed. */
void mics_team_close(mics_team *team);

/* Runs `work` once in each thread; returns when all are done.
 *
 * Needs:   one call at a time.     Blocks: yes.
 */
void mics_team_run(mics_team *team, mics_team_work work, void *ctx);

/* Waits until shares are complete. Needs a call within mics_team_run's work by all threads, after
 * each took shares of these until none was left. */
void mics_team_await(mics_team *team, const mics_shares *shares);
