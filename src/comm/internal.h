// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What the files of this module share; nobody else includes it.
#ifndef MICS_COMM_INTERNAL_H
#define MICS_COMM_INTERNAL_H

#include "mics/comm.h"
#include <stddef.h>
#include <stdint.h>

// The MPI transport cuts a message into chunks; a window of them is under way each way, and a sum
// receives each into its own piece of the staging buffer. Between ranks of a node a chunk is large
// enough that waking for it costs little beside copying it. Between nodes it is small enough to be
// sent without asking: Open MPI over TCP asks the receiver above 64 KiB, and the answer waits
// behind what the receiver is sending itself. So two ranks that exchange large chunks fall into step, one
// sending while the other waits, at half the rate of the link (4 MiB each way on 1 Gbit/s: 65 MB/s
// with chunks of 1 MiB, 124 with these). A message up to COMM_SMALL_BYTES, header included, travels
// as one.
enum {
    COMM_CHUNK_BYTES = 1024 * 1024,
    COMM_WINDOW = 4,
    COMM_FAR_CHUNK_BYTES = 60 * 1024,
    COMM_FAR_WINDOW = 16,
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

/* For tests: library gathers on an MPI comm treat blocks above `bytes` as those that MPI cannot
 * count. */
void mics_comm_mpi_limit_library(mics_comm *comm, size_t bytes);

/* For tests: an MPI comm exchanges by MPI inside the node too. All ranks of a node call it. */
void mics_comm_mpi_forgo_near(mics_comm *comm);

/* sum[i] = received[i] + sum[i]: the one addition of every transport, so that all give the same
 * bits. The arrays do not overlap. */
static inline void comm_add_f32(float *restrict sum, const float *restrict received, size_t elems)
{
    for (size_t i = 0; i < elems; i++)
        sum[i] = received[i] + sum[i];
}

#endif
