// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Communicators: one rank's end of a world. A transport is one required function, `exchange`; the
// collectives are rings built from it, and small ones rounds of doubling. So every transport adds in
// the same order and gives the same bits, and a wrapper that counts, delays or fails sees every byte
// that is sent.
//
// Ring order. Members are in ascending rank order, so a ring crosses each node boundary once. A
// block b that is reduced starts at the member after its owner and ends at the owner: the sum is
// ((x[o+1] + x[o+2]) + ...) + x[o], indices modulo the group's size.
//
// Channels. One thread a channel may use a comm at a time. Exchanges of different channels never
// meet, so collectives on one proceed beside those on the other. A failure on one ends both.
#ifndef MICS_COMM_H
#define MICS_COMM_H

#include "mics/core/device.h"
#include "mics/core/dtype.h"
#include "mics/core/mesh.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mics_reduce { MICS_REDUCE_COPY, MICS_REDUCE_SUM_F32 } mics_reduce;

// In place of a world rank: nobody.
enum { MICS_RANK_NONE = -1 };

enum { MICS_CHANNELS = 2 };

// Sends `bytes` to one rank while receiving as many, or recv_bytes, from another (both may be the
// same rank, this one too). COPY: recv = received. SUM_F32: recv[i] = received[i] + recv[i]; or, with `into`, that
// sum goes there and recv stays as it is.
typedef struct mics_exchange {
    int32_t to;       // world rank; MICS_RANK_NONE: nothing is sent
    int32_t from;     // world rank; MICS_RANK_NONE: nothing is received
    const void *send; // not overlapping recv
    void *recv;
    size_t bytes;
    size_t recv_bytes; // (optional) of COPY: so many are received; 0: as many as are sent
    mics_reduce reduce;
    float *into;      // (optional) of SUM_F32; overlaps no other buffer
    bool add;         // to what `into` holds
    int32_t channel;  // 0 <= channel < MICS_CHANNELS
    const char *what; // the same on both sides: "all-gather of unit h.3"; never NULL
} mics_exchange;

/* Bytes that an exchange receives. Pure. */
static inline size_t mics_exchange_incoming(const mics_exchange *exchange)
{
    return exchange->recv_bytes > 0 ? exchange->recv_bytes : exchange->bytes;
}

// A collective's members and which block each one owns.
typedef struct mics_comm_group {
    mics_group group;
    const int32_t
        *block_of; // block index by member, a permutation of [0, group.size); NULL: identity
    int32_t channel;
    const char *what; // for errors; never NULL
} mics_comm_group;

// An exchange that timed out: its partner is late.
typedef struct mics_timeout {
    const char *what;
    int32_t rank;    // who waits
    int32_t peer;    // for whom; MICS_RANK_NONE: nobody in particular
    bool sending;    // the peer has not received; false: it has not sent
    double waited_s; // without any part of it moving
} mics_timeout;

// Says, in the log, why an exchange timed out. Called once a rank, from the exchange's thread,
// before it returns MICS_ERR_TIMEOUT. It may take a while; the world may end in that time. An
// exchange of the other channel that times out meanwhile returns the same, in silence.
typedef void (*mics_timeout_handler)(void *ctx, const mics_timeout *late);

// A rank's status, as heartbeats carry it: what it was last seen doing, in bytes that only their
// writer and readers understand.
enum { MICS_HEARTBEAT_BYTES = 64 };
typedef struct mics_heartbeat {
    unsigned char bytes[MICS_HEARTBEAT_BYTES];
} mics_heartbeat;

// A collective on buffers that may be a device's. In place.
typedef enum mics_comm_call_kind {
    MICS_COMM_CALL_ALL_GATHER, // as mics_comm_all_gather
    // Each member sends each other its block of `buffer`. `incoming` gets this member's block from
    // the others: its block h - 1 is from member index - h (modulo the size), h = 1, 2, ... By
    // owner, it lies as `buffer` does: block b is from the owner of block b, and this member's own
    // block of it stays as it was.
    MICS_COMM_CALL_ALL_TO_ALL,
    MICS_COMM_CALL_REDUCE_SCATTER, // as mics_comm_reduce_scatter; fp32
    MICS_COMM_CALL_ALL_REDUCE,     // over group.size blocks, as mics_comm_all_reduce; fp32
    MICS_COMM_CALLS
} mics_comm_call_kind;

typedef struct mics_comm_call {
    mics_comm_call_kind kind;
    const mics_comm_group *over; // channel c is stream c + 1 of a device
    void *buffer;                // group.size blocks; member m's lies at block_of[m]
    void *incoming; // ALL_TO_ALL: group.size - 1 blocks, by owner group.size; else NULL
    bool by_owner;  // ALL_TO_ALL
    int64_t block_elems;
    int64_t stride_elems; // ALL_TO_ALL: from one block of `buffer` to the next; 0: block_elems
    mics_dtype dtype;
} mics_comm_call;

// Memory of a comm's device that collectives use.
typedef struct mics_comm_buffer {
    void *memory;
    size_t bytes;
} mics_comm_buffer;

enum { MICS_COMM_MAX_BUFFERS = 8 };

// Runs each collective that will be used once, and waits for the device.
typedef mics_status (*mics_comm_warm_up_run)(void *ctx);

// A wrapper leaves out what it does as its inner comm does; a transport what is optional.
typedef struct mics_comm_ops {
    const char *name; // "thread", "mpi", ...
    // Blocks until the received data is in place and `send` may be changed. Deadline: the
    // transport's. The arguments are checked. Afterwards nobody touches the buffers; but after a
    // failure an MPI that moves data by itself (RDMA) may, until the program ends, as it must then.
    mics_status (*exchange)(void *ctx, const mics_exchange *exchange);
    // Sets the deadline of this rank's later exchanges; seconds > 0.
    void (*set_timeout)(void *ctx, double seconds);
    // Makes every rank's pending and later exchanges fail (or ends their processes), without a line
    // in the log; not collective, and any thread may call it while another is in `exchange`.
    void (*abort)(void *ctx);
    // Who speaks when an exchange of this rank times out; NULL: the transport itself, in one line.
    void (*set_timeout_handler)(void *ctx, mics_timeout_handler handler, void *handler_ctx);
    // Heartbeats; see mics_comm_heartbeat_post and mics_comm_heartbeat_read.
    void (*post)(void *ctx, const mics_heartbeat *heartbeat);
    bool (*read)(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out);
    // Frees ctx and the mics_comm that holds it.
    void (*close)(void *ctx);
    // (optional) A collective on buffers of the device that this comm was opened with, enqueued on
    // its stream; without it buffers are the host's, and rings of exchanges run it.
    mics_status (*collective)(void *ctx, const mics_comm_call *call);
    // (optional) Whether what was enqueued has failed so far; does not wait.
    mics_status (*check)(void *ctx);
    // (optional) As mics_comm_register and mics_comm_unregister; without them there is nothing to
    // do.
    mics_status (*register_buffers)(void *ctx, const mics_comm_buffer *buffers, int32_t count);
    void (*unregister_buffers)(void *ctx);
    // (optional) As mics_comm_warm_up; without it `run` alone is called.
    mics_status (*warm_up)(void *ctx, mics_comm_warm_up_run run, void *run_ctx);
    // (optional) As mics_comm_share and mics_comm_unshare.
    mics_status (*share)(void *ctx, const mics_comm_group *over, size_t bytes, void **memory_out);
    void (*unshare)(void *ctx, void *memory);
} mics_comm_ops;

typedef struct mics_comm {
    const mics_comm_ops *ops;
    void *ctx;
    struct mics_comm *inner; // of a wrapper; NULL: a transport
    int32_t rank;
    int32_t ranks;
    int32_t ranks_per_node; // as the transport found it; ranks when unknown
    size_t staging_bytes;   // what it holds of MICS_MEM_COMM from opening to closing
    // Ranks that share memory (mics_comm_share): each so many, from rank 0 on; 1: none do. The same
    // on all ranks.
    int32_t ranks_sharing;
} mics_comm;

// ---- what every rank calls; all in the same order ----

/* One exchange, checked. One of no bytes is sent too: it waits for rank `from` to come.
 *
 * After an error the world is of no further use: the rank ends it for all with mics_comm_abort.
 * Shapes:  send, recv, into: `bytes` long; of floats where the exchange adds.
 * Needs:   other ranks as the structure says; for a sum, bytes divisible by 4.
 * Returns: MICS_OK; MICS_ERR_INVALID; MICS_ERR_COMM (also: the partner sends another number of
 *          bytes, or another `what`); MICS_ERR_TIMEOUT; MICS_ERR_ABORTED: another rank
 *          has ended the world. It is not logged: that rank has said why, and one line in all is
 *          what people read.
 * Blocks:  yes.
 */
mics_status mics_comm_exchange(mics_comm *comm, const mics_exchange *exchange);

/* In place: every member's block reaches all. Buffer: group.size blocks of block_bytes; member m's
 * lies at block_of[m]. Sends (size - 1) * block_bytes to the next member.
 *
 * Shapes:  buffer: (group.size, block_bytes).
 * Units:   bytes.
 * Needs:   this rank is group.index, and block_of a permutation.
 * Returns: as mics_comm_exchange.   Collective: over the group.   Blocks: yes.
 */
mics_status mics_comm_all_gather(mics_comm *comm, const mics_comm_group *over, void *buffer,
                                 size_t block_bytes);

/* The same for small blocks, whose latency counts: in ceil(log2(nodes)) exchanges between equal
 * local ranks, then ceil(log2(members of a node)) inside each node (mics_group_doubling; nodes of
 * comm->ranks_per_node). Sends size - 1 blocks too, nodes - 1 of them to other nodes. Of no bytes it
 * is a barrier: who returns knows that all members have come.
 *
 * Shapes:  buffer, work: (group.size, block_bytes), apart; both may be NULL where blocks are empty.
 * Units:   bytes.
 * Needs:   as mics_comm_all_gather. What `work` holds afterwards is of no use.
 * Returns: as mics_comm_exchange.   Collective: over the group.   Blocks: yes.
 */
mics_status mics_comm_all_gather_doubling(mics_comm *comm, const mics_comm_group *over,
                                          void *buffer, void *work, size_t block_bytes);

/* In place: afterwards this member's block holds the sum over all members (order: head of this
 * file), and the other blocks hold partial sums of no use. Sends (size - 1) * block_elems * 4
 * bytes.
 *
 * Shapes:  buffer: (group.size, block_elems); member m's block is block_of[m].
 * Units:   elements of 4 bytes.
 * Needs:   block_elems >= 0; the group and order as mics_comm_all_gather.
 * Returns: as mics_comm_exchange.   Collective: over the group.   Blocks: yes.
 */
mics_status mics_comm_reduce_scatter(mics_comm *comm, const mics_comm_group *over, float *buffer,
                                     int64_t block_elems);

/* The same, but the sum goes into `into` (block_elems floats apart from the buffer), or is added to
 * what that holds, in the pass that makes it; this member's block then holds a partial sum too.
 *
 * Shapes:  buffer: (group.size, block_elems); into: (block_elems).
 * Units:   elements of 4 bytes.
 * Needs:   as mics_comm_reduce_scatter; `into` does not overlap the buffer.
 * Returns: as mics_comm_exchange.   Collective: over the group.   Blocks: yes.
 */
mics_status mics_comm_reduce_scatter_into(mics_comm *comm, const mics_comm_group *over,
                                          float *buffer, int64_t block_elems, float *into,
                                          bool add);

/* A collective on buffers of the comm's device, if it was opened with one, and then only enqueued;
 * else on host memory, and done on return (done by the rings above; ALL_TO_ALL by one exchange a
 * hop).
 *
 * A counting comm counts a ring's bytes to the next member; ALL_TO_ALL what goes to each.
 * Shapes:  buffer: (group.size, block_elems); incoming: (group.size - 1, block_elems), by owner
 *          (group.size, block_elems), and apart from the buffer.
 *          ALL_TO_ALL reads block b of `buffer` at element b * stride_elems.
 * Units:   elements of the call's dtype.
 * Needs:   block_elems >= 0; fp32 where sums are made.
 * Returns: as mics_comm_exchange; MICS_ERR_DEVICE.   Collective: over the group.
 */
mics_status mics_comm_collective(mics_comm *comm, const mics_comm_call *call);

/* Whether what was enqueued has failed so far. Does not wait.   Returns: MICS_OK; MICS_ERR_COMM,
 * logged once. */
mics_status mics_comm_check(mics_comm *comm);

/* Sum over the members, the same bits on each: reduce-scatter, then all-gather. Needs elems
 * divisible by the group's size.
 *
 * Shapes:  buffer: (elems).
 * Units:   elements of 4 bytes.
 * Returns: as mics_comm_exchange; MICS_ERR_INVALID.   Collective: over the group.   Blocks: yes.
 */
mics_status mics_comm_all_reduce(mics_comm *comm, const mics_comm_group *over, float *buffer,
                                 int64_t elems);

/* Memory that all members of a group see, each at an address of its own (as threads: at one), of
 * zeroes. Who reads what another member has written must have heard from it since, by an exchange.
 *
 * Members' own mics_memory does not count it; of threads their world's does, as MICS_MEM_HOST.
 * Units:   bytes.
 * Needs:   all members within one range of comm->ranks_sharing ranks; bytes > 0.
 * Returns: MICS_OK; as mics_comm_exchange; MICS_ERR_MEMORY; MICS_ERR_UNSUPPORTED (members on
 *          several nodes, or a transport without it).
 * Owns:    each member gives it back with mics_comm_unshare, before the comm is closed.
 * Collective: over the group.   Blocks: yes.
 */
mics_status mics_comm_share(mics_comm *comm, const mics_comm_group *over, size_t bytes,
                            void **memory_out);

/* Gives it back; NULL is allowed. The other members keep it until they do.   Collective: no.
 *
 * Needs:   `memory` from mics_comm_share of this comm.
 */
void mics_comm_unshare(mics_comm *comm, void *memory);

/* Whether all ranks of the world are well. Call it before what one rank's failure would hang.
 *
 * Sends 4 bytes in each of ceil(log2(ranks)) rounds, on channel 0; in round k to the rank 2^k
 * further on.
 * Returns: MICS_OK when every rank said MICS_OK; `mine` when this rank failed, whatever became of
 *          the agreement; MICS_ERR_PEER when only others did (not logged: they have said why), and
 *          the world goes on; else why the agreement itself failed, as mics_comm_exchange. A rank
 *          that failed and would go on asks again, with MICS_OK, whether there is a world to do so.
 * Collective: world.   Blocks: yes.
 */
mics_status mics_comm_agree(mics_comm *comm, mics_status mine);

/* Whether any rank of the world says true. Unlike an agreement's, its status is of the collective
 * alone.
 *
 * Sends as mics_comm_agree.
 * Returns: MICS_OK, and *any_out the same on all ranks; as mics_comm_exchange (*any_out untouched).
 * Collective: world.   Blocks: yes.
 */
mics_status mics_comm_any(mics_comm *comm, bool mine, bool *any_out);

/* Lets this rank's later exchanges wait `seconds` for a partner, in place of what the transport was
 * opened with. For work that keeps some ranks longer than a collective may take (a checkpoint, a
 * corpus): every rank that may have to wait sets it before, and sets it back after.
 *
 * Units:   seconds.
 * Needs:   seconds > 0, and no exchange of this comm under way.
 * Returns: MICS_OK; MICS_ERR_INVALID.   Collective: no.   Blocks: no.
 */
mics_status mics_comm_set_timeout(mics_comm *comm, double seconds);

/* Copies `bytes` from rank `root` to all ranks of the world, on channel 0, along the ring in
 * pieces: each rank but the one before root sends them once, to the next.
 *
 * Shapes:  buffer: `bytes` long.
 * Needs:   0 <= root < comm->ranks, the same on all ranks, and so are the bytes.
 * Returns: as mics_comm_exchange.   Collective: world.   Blocks: yes.
 */
mics_status mics_comm_broadcast(mics_comm *comm, int32_t root, void *buffer, size_t bytes);

/* Ends the run of all ranks because this one failed. Under MPI it does not return.
 *
 * `why` is logged as an error; NULL when the reason was logged already, as failed calls do.
 * Threads: any, also while another thread is in a collective of this comm.   Collective: no.
 */
void mics_comm_abort(mics_comm *comm, const char *why);

/* Closes; NULL is allowed. */
void mics_comm_close(mics_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
