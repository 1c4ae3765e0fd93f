// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The world of a run: MPI's processes under an MPI launcher, else threads of this process. The
// verbs say what one rank does, and do not know which it is.
#pragma once

#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <pthread.h>
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
    mics_device *device; // NULL: the CPU; closed after the comm
    uint64_t base_hash;  // of all frozen parameters, of all ranks; 0: there are none
    bool agreed;         // its failure is known to all ranks, so that nobody must be stopped
} run_rank;

typedef struct run_rank_thread {
    run_rank rank;
    pthread_t thread;
    bool started;
    mics_status status; // of the newest call
} run_rank_thread;

// Only world.c changes it. What others may read comes first.
struct run_world {
    bool mpi; // ranks are processes; else threads of this one
    int32_t ranks, nodes;
    int32_t ranks_here; // that share this machine's memory with this process, itself included
    int32_t first;      // rank of this process, under MPI; else 0
    bool shares;        // ranks of a node can share memory (mics_comm_share)
    mics_memory *memory;
    mics_thread_world *threads; // NULL under MPI
    run_rank_thread *here;      // ranks of this process
    int32_t here_count;         // all of them with threads, one under MPI
    // What the ranks' threads do, which live as long as the world: `call` numbers what they are
    // asked for.
    pthread_mutex_t mutex; // guards the rest
    pthread_cond_t asked, answered;
    int64_t call;
    int32_t busy; // ranks that have not answered the newest call
    bool ends;
    mics_status (*rank_main)(void *ctx, run_rank *rank);
    void *ctx;
};

/* Ranks that certainly share a machine, as a node's do, and are all of them or its share: those that
 * one folder of node memory serves. */
int32_t run_world_node_ranks(const run_world *world);

/* Number of a rank's node among those of its machine: 0, but where --nodes makes several of one. */
int32_t run_world_node_number(const run_world *world, int32_t rank);

/* Opens the world. Until run_world_agree the error lines of this thread are held back
 * (mics_log_hold).
 *
 * Returns: MICS_OK; MICS_ERR_INVALID (ranks that MPI does not have, nodes that do not divide, torchrun);
 *          what a transport returned.
 * Owns:    close with run_world_close.
 */
mics_status run_world_open(mics_memory *memory, const run_world_spec *spec, run_world **world_out);

/* From now on ranks of different nodes exchange over MPI, where MPI has them, also those that
 * spec.nodes alone sets apart on one machine.
 * Needs:   all ranks have the same nodes, and call it between exchanges. */
void run_world_keep_apart(run_world *world);

/* Closes; NULL is allowed. */
void run_world_close(run_world *world);

// Setup, collective over processes: the next four come before run_world_run.

/* Agrees whether all statuses are good; the line of the lowest process that failed is written, and
 * no other. Returns: that process' status, the same on all. */
mics_status run_world_agree(run_world *world, mics_status mine);

/* Calls `prepare` on the first process, and then on the others, which find done what all need only
 * once (a token cache on a shared disk). The others wait as long as it takes. Returns: as
 * run_world_agree.
 */
mics_status run_world_first(run_world *world, mics_status (*prepare)(void *ctx), void *ctx);

/* The largest of every process' value, by element; on all. Needs count as run_rank_max. */
mics_status run_world_max(run_world *world, int64_t *values, int32_t count);

/* Every process' `mine`, by its rank, in `all_out`, which holds as many as there are processes. */
mics_status run_world_gather(run_world *world, const void *mine, size_t bytes, void *all_out);

/* Runs `rank_main` once a rank, each on the thread that it has in all calls, and waits for all. A
 * rank that fails ends all others, unless it set rank->agreed. Its error line is held back until it
 * calls run_rank_agree or ends.
 *
 * Returns: the worst status of this process' ranks, but another rank's failure only if there is
 * nothing else.
 */
mics_status run_world_run(run_world *world, mics_status (*rank_main)(void *ctx, run_rank *rank),
                          void *ctx);

/* From now on the calling thread's lines are those of a rank, and no line is held back: after calls that
 * are collective over processes. */
void run_rank_begin_log(const run_rank *rank);

/* As run_world_agree, of ranks, before the engine. Marks a failure as agreed. */
mics_status run_rank_agree(run_rank *rank, mics_status mine);

/* In place: every rank's block, by rank, on all. Needs the comm to be free.
 *
 * Shapes:  blocks: (ranks, bytes). */
mics_status run_rank_gather(run_rank *rank, void *blocks, size_t bytes);

/* The largest of every rank's value, by element; on all ranks. Needs the comm to be free, and 1 <=
 * count <= RUN_MAX_VALUES. */
enum { RUN_MAX_VALUES = 32 };
mics_status run_rank_max(run_rank *rank, int64_t *values, int32_t count);

/* The sum of every rank's value, modulo 2^64, on all ranks. Needs the comm to be free. */
mics_status run_rank_sum(run_rank *rank, uint64_t *value);
