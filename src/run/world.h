// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The world of a run: MPI's processes under an MPI launcher, else threads of this process. The
// verbs say what one rank does, and do not know which it is.
#ifndef MICS_RUN_WORLD_H
#define MICS_RUN_WORLD_H

#include "mics/comm.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct run_world run_world;

typedef struct run_world_spec {
    int32_t ranks; // 0: MPI's, or 1
    int32_t nodes; // 0: as MPI found them, or 1
    double timeout_s;
} run_world_spec;

// One rank, as its thread sees it.
typedef struct run_rank {
    run_world *world;
    mics_memory *memory; // counts this rank's memory alone
    mics_comm *comm;     // counting; free for use while no engine holds it
    mics_device *device; // NULL: the processor; closed after the comm
    bool agreed;         // its failure is known to all ranks, so that nobody must be stopped
} run_rank;

/* Opens the world.
 *
 * Until then, and until run_world_agree, the error lines of this thread are held back
 * (mics_log_hold).
 * Returns: MICS_OK; MICS_ERR_INVALID (ranks that MPI does not have, nodes that do not divide);
 *          what a transport returned.
 * Owns:    close with run_world_close.
 */
mics_status run_world_open(mics_memory *memory, const run_world_spec *spec, run_world **world_out);

/* Closes; NULL is allowed. */
void run_world_close(run_world *world);

int32_t run_world_ranks(const run_world *world);
int32_t run_world_nodes(const run_world *world);
bool run_world_is_mpi(const run_world *world);
/* Whether this process has rank 0. */
bool run_world_is_first(const run_world *world);
/* The first rank of this process: its own under MPI, else 0. */
int32_t run_world_first_rank(const run_world *world);
/* Whether ranks of a node can share memory (mics_comm_share). */
bool run_world_shares(const run_world *world);
/* Ranks that share this machine's memory with this process, itself included. */
int32_t run_world_ranks_here(const run_world *world);

/* Setup: all processes agree whether `mine` and the others' statuses are good; the line of the
 * lowest process that failed is written, and no other.
 *
 * Returns: that process' status, the same on all.   Collective: over processes, before
 * run_world_run.
 */
mics_status run_world_agree(run_world *world, mics_status mine);

/* Setup: calls `prepare` on the first process, and then on the others, which find done what all
 * need only once (a token cache on a shared disk). The others wait as long as it takes.
 *
 * Returns: as run_world_agree.   Collective: over processes, before run_world_run.
 */
mics_status run_world_first(run_world *world, mics_status (*prepare)(void *ctx), void *ctx);

/* Runs `rank_main` once a rank, each on the thread that it has in all calls, and waits for all. A
 * rank that fails ends all others, unless it set rank->agreed. Its error line is held back until it
 * calls run_rank_agree or ends.
 *
 * Returns: the worst status of this process' ranks, but another rank's failure only if there is
 * nothing else.
 */
mics_status run_world_run(run_world *world, mics_status (*rank_main)(void *ctx, run_rank *rank),
                          void *ctx);

/* Setup inside a rank, before the engine: as run_world_agree, over ranks. Marks a failure as
 * agreed.
 */
mics_status run_rank_agree(run_rank *rank, mics_status mine);

/* The largest of every process' value, by element; on all processes. Setup only, before
 * run_world_run; needs count as below.
 */
mics_status run_world_max(run_world *world, int64_t *values, int32_t count);

/* Every process' `mine`, by its rank, in `all_out`, which holds as many as there are processes.
 * Setup only, before run_world_run.
 */
mics_status run_world_gather(run_world *world, const void *mine, size_t bytes, void *all_out);

/* The largest of every rank's value, by element; on all ranks. Needs the comm to be free, and
 * 1 <= count <= RUN_MAX_VALUES.
 */
enum { RUN_MAX_VALUES = 32 };
mics_status run_rank_max(run_rank *rank, int64_t *values, int32_t count);

#endif
