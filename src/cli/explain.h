// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The two forms of what mics explain prints.
#ifndef MICS_CLI_EXPLAIN_H
#define MICS_CLI_EXPLAIN_H

#include "mics/memory.h"
#include "mics/run.h"
#include "mics/schedule.h"

/* Prints for people; a schedule that is long only in part unless `all_steps`. Needs a job with its
 * plan open.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY, before anything is printed.
 */
mics_status cli_explain_text(mics_memory *memory, const mics_job *job, bool all_steps);

/* Prints one JSON object. Returns: as cli_explain_text. */
mics_status cli_explain_json(mics_memory *memory, const mics_job *job);

// ---- explain_collectives.c ----

enum { CLI_OPERATIONS = 24 };

// One operation on all units that it runs alike on.
typedef struct cli_operation {
    mics_step_kind kind; // PARAM_SYNC, GATHER, REDUCE, SCATTER, REPLICA_SCATTER or REPLICA_GATHER
    const char *algorithm;
    mics_comm_dtype dtype;
    mics_group_axis axis;
    int32_t units;
    int64_t min_elems, max_elems; // of a unit
} cli_operation;

typedef struct cli_operations {
    cli_operation rows[CLI_OPERATIONS];
    int32_t count;
    int32_t whole_units; // that stay whole on every rank, where others are sharded
    int64_t whole_elems; // of them together
} cli_operations;

/* "ring", "direct", ..., and "two-stage" for what runs in stages. */
const char *cli_step_algorithm(const mics_step *step);

/* The collectives of a training step over units, in the order in which they come.
 *
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 */
mics_status cli_operations_list(mics_memory *memory, const mics_schedule *schedule,
                                cli_operations *rows_out);

#endif
