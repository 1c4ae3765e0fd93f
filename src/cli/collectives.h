// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Which algorithms a run's gathers and reductions take: run.collectives, and what was measured.
//
// Times are kept in OUT/collectives.json, so that a run that goes on need not measure again, and
// takes the algorithms that it took before. Rank 0 alone reads it, and tells the others.
#ifndef MICS_CLI_COLLECTIVES_H
#define MICS_CLI_COLLECTIVES_H

#include "mics/measure.h"
#include "mics/memory.h"
#include "mics/schedule.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdio.h>

// What was measured, and where it came from.
typedef struct cli_collectives {
    mics_timings timings; // no rows: nothing was to be chosen
    bool read;            // from the output folder
    bool replaced;        // the output folder had a file of another mesh, model or transport
    double took_s;        // measuring
} cli_collectives;

struct cli_job;

/* Settles them before training: measures, or reads what was measured, and makes the schedule again
 * with what is the fastest. Opens the transport's own gathers where they may run.
 *
 * Needs:   the schedule, and the output folder; no engine.
 * Returns: MICS_OK; MICS_ERR_UNSUPPORTED (run.collectives is "library", and the transport has none);
 *          MICS_ERR_MEMORY; as mics_comm_exchange.
 * Collective: over processes.
 */
mics_status cli_collectives_settle(struct cli_job *job);

/* Prints the table of what was measured and what runs; nothing where nothing was. */
void cli_collectives_print(const struct cli_job *job, FILE *out);

// ---- collectives_file.c ----

// What times are good for.
typedef struct cli_collectives_key {
    const mics_schedule *schedule;
    const char *transport; // "mpi" or "threads"
    bool library;
} cli_collectives_key;

/* Reads DIR/collectives.json into a plan, if it is there and for the same key and plan.
 *
 * A file that is damaged, or none of ours, is one warning; one for another key is not.
 * Returns: whether it was taken (*timings untouched otherwise); *other_out: it was for another key.
 */
bool cli_collectives_read(mics_memory *memory, const char *dir, const cli_collectives_key *key,
                          mics_timings *timings, bool *other_out);

/* Writes it; a failure is a warning, as the run needs it not. */
void cli_collectives_write(mics_memory *memory, const char *dir, const cli_collectives_key *key,
                           const mics_timings *timings);

#endif
