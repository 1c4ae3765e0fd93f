// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Types and functions that the files of this module share; private to comm.
#pragma once

#include "base/hash.h"
#include "base/nccl.h"
#include "mics/core/comm.h"
#include "mics/core/transport.h"
#include <stddef.h>
#include <stdint.h>

// The MPI transport cuts a message into chunks; a window of them is under way each way, and a sum
// receives each into its own piece of the staging buffer. Between ranks of a node a chunk is large
// enough that waking for it costs little beside copying it. Between nodes it is small enough to be
// sent without asking: Open MPI over TCP asks the receiver above 64 KiB, and the answer waits
// behind what the receiver is sending itself. So two ranks that exchange large chunks fall into
// step, one sending while the other waits, at half the rate of the link (4 MiB each way on 1
// Gbit/s: 65 MB/s with chunks of 1 MiB, 124 with these). A message up to COMM_SMALL_BYTES, header
// included, travels as one.
enum {
    COMM_CHUNK_BYTES = 1024 * 1024,
    COMM_WINDOW = 4,
    COMM_INTER_CHUNK_BYTES = 60 * 1024,
    COMM_INTER_WINDOW = 16,
    COMM_SMALL_BYTES = 4096,
    // Of a channel: one piece a chunk, and a small message each way.
    COMM_CHANNEL_BYTES = COMM_WINDOW * COMM_CHUNK_BYTES + 2 * COMM_SMALL_BYTES,
    COMM_STAGING_BYTES = MICS_CHANNELS * COMM_CHANNEL_BYTES,
};

/* Number of processes that the MPI launcher says it started, from the environment; 0 when it does
 * not say. */
int32_t mics_comm_mpi_announced_ranks(void);

/* This process's number among them, 0 when the launcher does not say. */
int32_t mics_comm_mpi_announced_rank(void);

// From a comm to the one that has an entry of the table: what a wrapper leaves out its inner comm
// has.
#define COMM_FIND(comm, entry)                                                                     \
    do {                                                                                           \
        while ((comm)->ops->entry == NULL && (comm)->inner != NULL)                                \
            (comm) = (comm)->inner;                                                                \
    } while (0)

/* What every collective needs of its ring and buffer (comm.h).   Returns: MICS_OK;
 * MICS_ERR_INVALID, logged. */
mics_status comm_check_group(const mics_comm *comm, const mics_comm_group *over, const void *buffer,
                             size_t block_bytes);

/* A collective by exchanges of `comm`, whose arguments have been checked. */
mics_status comm_call_by_rings(mics_comm *comm, const mics_comm_call *call);

/* Opens a comm whose collectives go through host memory (comm.h, MICS_TRANSPORT_STAGED). Not
 * collective; otherwise as mics_comm_device_open_take. */
mics_status comm_staged_open_take(mics_memory *memory, mics_comm *inner, mics_device *device,
                                  size_t piece_bytes, mics_comm **comm_out);

// Settings of NCCL that follow from the ranks' cards (on_device.c), the same on all ranks.
typedef struct comm_nccl_terms {
    mics_nccl_ctas ctas;
    int32_t sharers; // ranks of the GPU that has most
} comm_nccl_terms;

// What the plugin exports as MICS_CUDA_COMM_OPEN: opens a comm over NCCL, as
// mics_comm_device_open_take, once that has found that NCCL takes these ranks and their GPUs. Every
// ring gets a communicator, also one of a single rank, whose collectives then go through NCCL.
#define MICS_CUDA_COMM_OPEN "mics_cuda_comm_open_take"
typedef mics_status (*comm_nccl_open_take)(mics_memory *memory, mics_comm *inner,
                                           const mics_device_comm_spec *spec,
                                           const comm_nccl_terms *terms, mics_comm **comm_out);

// What the plugin exports as MICS_CUDA_COMM_WHY_NOT: why this process has no NCCL that will do;
// NULL: it has.
#define MICS_CUDA_COMM_WHY_NOT "mics_cuda_comm_why_not"
typedef const char *(*comm_nccl_why_not)(void);

// What the plugin exports as MICS_CUDA_COMM_TO_ITSELF, for tests on one GPU, where no all-to-all
// has a partner: sends this rank's block of `buffer` to itself, into `incoming`. `comm` is of
// MICS_CUDA_COMM_OPEN; block_elems >= 1.
#define MICS_CUDA_COMM_TO_ITSELF "mics_cuda_comm_to_itself"
typedef mics_status (*comm_nccl_to_itself)(mics_comm *comm, const mics_comm_call *call);

// By which another rank of the node finds memory that one has made.
typedef struct comm_ticket {
    int32_t made; // 0: its maker could not
    int32_t process;
    int32_t file;
    uint64_t mark;
    void *address; // in the maker's process
} comm_ticket;

// How a transport shares memory (mics_comm_share).
typedef struct comm_share_ops {
    // Zeroed, for `users` members, the maker among them.
    mics_status (*make)(void *ctx, size_t bytes, int32_t users, comm_ticket *ticket_out,
                        void **memory_out);
    mics_status (*find)(void *ctx, size_t bytes, const comm_ticket *ticket, void **memory_out);
    // (optional) Called by the maker, once no other member looks for it any more.
    void (*made)(void *ctx, const comm_ticket *ticket);
    void (*drop)(void *ctx, void *memory);
} comm_share_ops;

/* As mics_comm_agree, among the members of a group. */
mics_status comm_agree(mics_comm *comm, const mics_comm_group *over, mics_status mine);

/* mics_comm_share for a transport whose exchanges are `comm`'s. */
mics_status comm_share_by(mics_comm *comm, const comm_share_ops *ops, const mics_comm_group *over,
                          size_t bytes, void **memory_out);

/* The block that a member owns. */
static inline int32_t comm_block_of(const mics_comm_group *over, int32_t member)
{
    return over->block_of != NULL ? over->block_of[member] : member;
}

/* Tells orders of blocks apart. */
static inline uint64_t comm_order_hash(const mics_comm_group *over)
{
    uint64_t hash = MICS_FNV1A_BEGIN;
    for (int32_t m = 0; m < over->group.size; m++) {
        const int32_t block = comm_block_of(over, m);
        hash = mics_fnv1a(hash, &block, sizeof block);
    }
    return hash;
}

/* Where block `index` begins; the buffer may be NULL when blocks are empty. */
static inline void *comm_block(void *buffer, int32_t index, size_t block_bytes)
{
    return block_bytes > 0 ? (char *)buffer + (size_t)index * block_bytes : buffer;
}

/* Where what an ALL_TO_ALL sends to the owner of block `block` begins. */
static inline void *comm_outgoing(const mics_comm_call *call, int32_t block)
{
    const int64_t stride = call->stride_elems > 0 ? call->stride_elems : call->block_elems;
    return comm_block(call->buffer, block, (size_t)stride * mics_dtype_bytes(call->dtype));
}

/* Where an ALL_TO_ALL puts what the owner of block `block` sends, who is `hop` members before. */
static inline void *comm_incoming(const mics_comm_call *call, int32_t hop, int32_t block,
                                  size_t block_bytes)
{
    return comm_block(call->incoming, call->by_owner ? block : hop - 1, block_bytes);
}

/* What SUM_F32 does with `elems` received numbers that belong at element `first` of the exchange:
 * the one addition of every transport, so that all give the same bits. */
static inline void comm_add_f32(const mics_exchange *exchange, size_t first,
                                const float *restrict received, size_t elems)
{
    float *restrict own = (float *)exchange->recv + first;
    float *restrict into = exchange->into != NULL ? exchange->into + first : NULL;
    if (into == NULL) {
        for (size_t i = 0; i < elems; i++)
            own[i] = received[i] + own[i];
    } else if (exchange->add) {
        for (size_t i = 0; i < elems; i++)
            into[i] += received[i] + own[i];
    } else {
        for (size_t i = 0; i < elems; i++)
            into[i] = received[i] + own[i];
    }
}
