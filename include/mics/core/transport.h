// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Opening communicators: over threads, MPI or a device, and counting what one sends; and preparing them.
#ifndef MICS_TRANSPORT_H
#define MICS_TRANSPORT_H

#include "mics/core/comm.h"
#include "mics/core/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- transports ----

// The world that ranks as threads of one process share.
typedef struct mics_thread_world mics_thread_world;

/* Opens a world of `ranks` threads. It stages nothing: receivers read the sender's buffer.
 *
 * A late partner is reported once in a world, naming who is waited for and which rank is in no
 * exchange at all; or that rank's time-out handler is called, once in a world.
 * Needs:   ranks >= 1; timeout_s > 0: how long an exchange waits for its partner.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_MEMORY.
 * Owns:    close it with mics_thread_world_close after every rank's comm is closed.
 */
mics_status mics_thread_world_open(mics_memory *memory, int32_t ranks, double timeout_s,
                                   mics_thread_world **world_out);

/* Closes a world; NULL is allowed. */
void mics_thread_world_close(mics_thread_world *world);

/* One rank's end. Call once a rank; any thread may call. It has no heartbeat yet.
 *
 * Needs:   0 <= rank < the ranks of `world`; the world outlives the comm.
 * Returns: MICS_OK; MICS_ERR_INVALID (no such rank, or it is open); MICS_ERR_MEMORY.
 * Owns:    close with mics_comm_close.
 */
mics_status mics_comm_thread_open(mics_memory *memory, mics_thread_world *world, int32_t rank,
                                  mics_comm **comm_out);

/* True when this process was started by an MPI launcher (Open MPI, MPICH, Slurm with PMI/PMIx), or
 * by `srun` as one of several tasks, as told by the environment; nothing is initialised. A build
 * without MPI answers too, so that a program refuses to train one copy a process.
 *
 * Returns: 1 or 0.
 */
int mics_comm_mpi_launched(void);

/* Refuses a process that torchrun, or what speaks as it does, started as one of several: without an
 * MPI launcher each would train alone. The first process of each machine says so.
 *
 * Returns: MICS_OK; MICS_ERR_INVALID: WORLD_SIZE is above 1 and RANK is set.
 */
mics_status mics_comm_check_launcher(void);

/* Version of the MPI library this build uses ("Open MPI v4.1.4"), or NULL when it was built without
 * one. Nothing is initialised. Threads: any. */
const char *mics_comm_mpi_version(void);

/* What mics_comm_mpi_open allocates of MICS_MEM_COMM, whether this build has MPI or not.
 *
 * Units:   bytes.
 */
size_t mics_comm_mpi_staging_bytes(void);

/* Initialises MPI, unless the program has, and opens MPI_COMM_WORLD. One caller a process.
 *
 * The environment stays as it is; docs/library.md says what Open MPI is better told there.
 * The comm may be used by threads other than the opener; MPI_THREAD_SERIALIZED is enough. With more
 * than one rank it has a thread of its own, which calls MPI a few times a second until closing: a
 * program that calls MPI meanwhile needs MPI_THREAD_MULTIPLE.
 * Ranks of a node read each other's memory where the system permits (process_vm_readv); MPI carries
 * the rest. `ranks_per_node` is found from shared memory; ranks must be numbered node by node,
 * equally many on each. An exchange is late when no part of it has moved for timeout_s, not
 * counting time in which this process was stopped.
 * Needs:   timeout_s > 0.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (built without MPI; thread level missing);
 *          MICS_ERR_INVALID (nodes with unequal numbers of ranks, or ranks not consecutive in a
 *          node); MICS_ERR_COMM (also: the launcher is of another MPI); MICS_ERR_MEMORY;
 *          MICS_ERR_TIMEOUT (some rank does not open; MPI is of no more use then).
 * Owns:    mics_comm_close finalises MPI if this call initialised it and no exchange has failed. It
 *          waits for all ranks to close, up to ten times the time-out of then.
 * Collective: yes.
 */
mics_status mics_comm_mpi_open(mics_memory *memory, double timeout_s, mics_comm **comm_out);

/* Treats every `node_ranks` ranks of a comm over MPI as a node of their own: ranks of two such nodes
 * exchange by MPI, as over a network, also where one machine has both and they could read each
 * other's memory. Lowers `ranks_sharing`; `ranks_per_node` stays what the machine has.
 * Needs:   1 <= node_ranks <= ranks_per_node; between exchanges, on all ranks.
 */
void mics_comm_mpi_keep_apart(mics_comm *comm, int32_t node_ranks);

// ---- wrappers: each takes the inner comm over and closes it ----

typedef struct mics_traffic {
    int64_t intra_bytes; // sent to ranks of the same node
    int64_t inter_bytes; // sent to other nodes
    int64_t exchanges;
} mics_traffic;

/* Counts what is sent. Ranks r and q share a node when r / ranks_per_node == q / ranks_per_node;
 * the new comm's ranks_per_node is this one.
 *
 * Needs:   ranks_per_node >= 1.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_MEMORY (the inner comm is then still the caller's).
 * Owns:    the new comm closes `inner`; close it with mics_comm_close.
 */
mics_status mics_comm_count_open_take(mics_memory *memory, mics_comm *inner, int32_t ranks_per_node,
                                      mics_comm **comm_out);

/* What was counted since opening. Needs a comm made by mics_comm_count_open_take; not while it is
 * in use.
 *
 * Units:   bytes; exchanges as a number.
 */
void mics_comm_count_get(const mics_comm *counting, mics_traffic *traffic_out);

/* Gets the comm that a counting comm wraps, or replaces it. The new one must have taken over the
 * old one, as a comm that wraps it does.
 *
 * Needs:   as mics_comm_count_get.      Owns: the counting comm closes what it has last.
 * Returns: the inner comm, never NULL.
 */
mics_comm *mics_comm_count_inner(const mics_comm *counting);
void mics_comm_count_put_inner(mics_comm *counting, mics_comm *inner);

/* Whether a comm was made by mics_comm_count_open_take.
 *
 * Returns: 1 or 0.
 */
int mics_comm_is_counting(const mics_comm *comm);

// How collectives on a device's buffers travel.
typedef enum mics_device_transport {
    // NCCL (2.22 or newer) where each rank has it, and a GPU of its own or an NCCL that lets ranks
    // share one; else staged, and where it is NCCL that is missing, rank 0 logs a warning
    MICS_TRANSPORT_AUTO,
    MICS_TRANSPORT_STAGED, // through page-locked host memory, by the inner comm
    MICS_TRANSPORT_NCCL,
    MICS_TRANSPORTS
} mics_device_transport;

typedef struct mics_device_comm_spec {
    mics_device *device;
    mics_device_transport transport;
    size_t piece_bytes;            // staged
    const mics_comm_group *groups; // NCCL; `what` names the group
    int32_t group_count;
    double timeout_s; // NCCL
} mics_device_comm_spec;

/* Lets mics_comm_collective take buffers of `device`; all else goes by the inner comm, also the
 * addresses that NCCL needs.
 *
 * Staged: a collective waits for its stream and is done on return; two pieces of `piece_bytes` of
 * host memory a channel. Good for any transport and for several ranks on one GPU, which NCCL
 * refuses before 2.30, and then without NCCL_MULTI_RANK_GPU_ENABLE=1 in the environment of each;
 * slow. NCCL: one communicator for each of `groups` (this rank's group of each kind that
 * will be used, each on one channel); a collective enqueues and returns, and who waits for the
 * device keeps the deadline; the time-out of the inner comm's opening holds for what the host does
 * (connecting). At most one kernel of NCCL a channel runs at once, and both together leave most of
 * the GPU free, so they cannot keep each other from starting, whatever their order on other ranks.
 * A device whose memory is the host's needs nothing: *comm_out is the inner comm.
 * Needs:   the device outlives the comm; piece_bytes >= 4, divisible by 4; timeout_s > 0.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (NCCL was asked for and is not to be had: logged, with
 *          why; the same on every rank); MICS_ERR_INVALID; MICS_ERR_TIMEOUT; MICS_ERR_COMM;
 *          MICS_ERR_MEMORY. After an error the inner comm is still the caller's.
 * Owns:    the new comm closes `inner`; close it with mics_comm_close.
 * Collective: world.
 */
mics_status mics_comm_device_open_take(mics_memory *memory, mics_comm *inner,
                                       const mics_device_comm_spec *spec, mics_comm **comm_out);

// ---- preparing ----

/* Says that from now on all buffers of collectives on the device lie in these blocks, so that NCCL
 * can send from them and receive into them without copies through its own. All communicators of all
 * ranks take all of them, or none does, which rank 0 says in a line, and nothing else changes.
 *
 * Shapes:  buffers: (count), each of as many bytes as it says.
 * Needs:   no collective under way on this comm's device, and none before on these blocks; blocks
 *          that do not overlap, at most MICS_COMM_MAX_BUFFERS.
 * Returns: MICS_OK; MICS_ERR_INVALID; as mics_comm_exchange.
 * Owns:    mics_comm_unregister comes before the blocks are freed, and before the comm is closed.
 * Collective: world, which agrees on it.   Blocks: yes.
 */
mics_status mics_comm_register(mics_comm *comm, const mics_comm_buffer *buffers, int32_t count);

/* Takes that back. Needs: nothing of this comm under way on the device, unless the world has ended.
 * Collective: no. */
void mics_comm_unregister(mics_comm *comm);

/* Lets `run` run each collective that will be used once, so that a library connects now what it
 * connects at a first use, and looks at what that has left of the device's memory.
 *
 * Needs:   `run` runs the same collectives on all members, of the sizes that will be used, as what
 *          NCCL connects depends on them.
 * Returns: MICS_OK; what `run` returned; MICS_ERR_MEMORY, logged with the figures, where NCCL has
 *          taken more than it was counted with, or less than 256 MiB are free; as
 *          mics_comm_exchange.
 * Collective: world.   Blocks: yes.
 */
mics_status mics_comm_warm_up(mics_comm *comm, mics_comm_warm_up_run run, void *run_ctx);

#ifdef __cplusplus
}
#endif
#endif
