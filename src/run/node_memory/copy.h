// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The parts of making a copy in node memory that need no other rank (node_memory.c), for who tells
// the others in between: over the communicator between steps, by files in the middle of one
// (alone.c).
#ifndef MICS_RUN_NODE_MEMORY_COPY_H
#define MICS_RUN_NODE_MEMORY_COPY_H

#include "io/checkpoint/node.h"
#include "mics/core/mesh.h"
#include "run/context.h"

// A rank's copies; zero before they are opened.
typedef struct run_copies {
    const run_context *context;
    mics_optimizer_shard *shards; // by unit: scratch
    int32_t slot;                 // where the next goes
    bool booked;                  // their memory is counted
    bool told;                    // the program was told of the first
} run_copies;

// What a rank tells the others of the file that it wrote.
typedef struct run_copy_report {
    int64_t bytes;
    uint64_t hash;
    int64_t status;
} run_copy_report;

// A copy under way, as a rank has it.
typedef struct run_copying {
    run_copies *of;
    mics_keep keep;
    int64_t step;
    char *slot;               // folder
    run_copy_report *reports; // by rank
    void *pieces;             // for a partner's copy: one to send, one to receive; NULL: none
} run_copying;

/* Whether the rank is the first of its node. */
static inline bool run_copy_leads(const run_context *context)
{
    return context->rank->comm->rank % run_world_node_ranks(context->job->world) == 0;
}

/* Readies a copy whose `of` and `step` are set.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.     Owns: free with run_copy_close. */
mics_status run_copy_open(run_copying *copy);
void run_copy_close(run_copying *copy);

/* Writes this rank's part into the slot that is due. Where the run makes copies only to stop, there
 * must be room for it.
 *
 * Needs:   the state on the host (mics_engine_download), which nobody changes.
 * Returns: MICS_OK; MICS_ERR_MEMORY: no room; MICS_ERR_NUMERIC: it is not finite; MICS_ERR_IO.
 */
mics_status run_copy_write(run_copying *copy, mics_node_file *file_out);

/* Lets the slot of this rank's node count.
 *
 * partners: it holds what the partner node sent, too.
 * Needs:    the reports of all ranks, who have all written; the first rank of its node.
 * Returns:  MICS_OK; MICS_ERR_IO, MICS_ERR_MEMORY.
 */
mics_status run_copy_commit(const run_copying *copy, bool partners);

#endif
