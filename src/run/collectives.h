// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which algorithms a run's gathers and reductions take: run.collectives, and what was measured.
//
// Times are kept in OUT/collectives.json, so that a run that goes on need not measure again, and
// takes the algorithms that it took before. Rank 0 alone reads it, and tells the others.
#ifndef MICS_RUN_COLLECTIVES_H
#define MICS_RUN_COLLECTIVES_H

#include "mics/measure.h"
#include "mics/memory.h"
#include "mics/schedule.h"
#include "mics/status.h"
#include "world.h"
#include <stdbool.h>
#include <stdio.h>

enum { RUN_REASON_BYTES = 256 };

// What was measured, and where it came from.
typedef struct run_collectives {
    mics_timings timings; // no rows: nothing was to be chosen
    bool read;            // from the output folder
    // What the times in the output folder were of, so that these were measured again: "other hosts
    // (a ... b, not c ... d)"; empty: there were none, or they were damaged.
    char reason[RUN_REASON_BYTES];
    double took_s; // measuring
} run_collectives;

struct mics_job;

/* Settles them before training: measures, or reads what was measured, and makes the schedule again
 * with what is the fastest. Opens the transport's own gathers where they may run.
 *
 * Needs:   the schedule, and the output folder; no engine.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (run.collectives is "library", and the transport has
 *          none); MICS_ERR_MEMORY; as mics_comm_exchange.
 * Collective: over processes.
 */
mics_status run_collectives_settle(struct mics_job *job);

/* Prints the table of what was measured and what runs; nothing where nothing was. */
void run_collectives_print(const struct mics_job *job, FILE *out);

// ---- collectives_place.c ----

enum { RUN_HOST_BYTES = 65 };

// Where times were measured: they say nothing of other places.
typedef struct run_place {
    const char *transport;           // "mpi" or "threads"
    char version[128];               // of the MPI library; empty for threads
    char first_host[RUN_HOST_BYTES]; // of the nodes
    char last_host[RUN_HOST_BYTES];
    char hosts[17];       // hash of the names of all nodes, node by node
    char processor[128];  // of the first node
    int64_t network_mbit; // of the fastest card of the node with the slowest; 0: unknown
    char machines[17];    // hash of processors and cards of all nodes
} run_place;

/* Finds it.
 *
 * Returns: MICS_OK, and the same place on all ranks; MICS_ERR_MEMORY; as mics_comm_exchange.
 * Collective: world.
 */
mics_status run_place_find(run_rank *rank, int32_t per_node, run_place *place_out);

// ---- collectives_file.c ----

// What times are good for.
typedef struct run_collectives_key {
    const mics_schedule *schedule;
    const run_place *place;
    bool library;
} run_collectives_key;

/* Reads DIR/collectives.json into a plan, if it is there and for the same key and plan.
 *
 * A file that is damaged, or none of ours, is one warning; one for another key is not.
 * Returns: whether it was taken (*timings untouched otherwise); in `reason` what it was of, if it
 *          was for another key, else nothing.
 */
bool run_collectives_read(mics_memory *memory, const char *dir, const run_collectives_key *key,
                          mics_timings *timings, char reason[RUN_REASON_BYTES]);

/* Writes it; a failure is a warning, as the run needs it not. */
void run_collectives_write(mics_memory *memory, const char *dir, const run_collectives_key *key,
                           const mics_timings *timings);

#endif
