// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Whether all processes were given the same job. What decides data and mathematics is listed as
// rows of a key and its value; processes compare a hash of their rows, and where hashes differ, the
// rows. Files count by what they hold and not by their paths, which nodes may have of their own.
#pragma once

#include "base/text.h"
#include "run/job.h"

/* Compares program, run file and model: before anything is chosen by them.
 *
 * Needs:   the run resolved, the model built; job->checkpoint as it was found.
 * Returns: MICS_OK; MICS_ERR_INVALID on all processes, logged by one: the keys that differ, with
 *          ranks and values; MICS_ERR_MEMORY; as collectives.
 * Collective: over processes, before run_world_run; nothing where ranks are threads of one.
 */
mics_status run_same_run(mics_job *job);

/* Compares data, imported weights, output folder and schedule: before engines open.
 *
 * Needs:   run_job_open_data.          Otherwise as run_same_run.
 */
mics_status run_same_data(mics_job *job);

/* Adds a row: key and value, each without tabs and newlines. */
static inline void run_same_add(mics_text *rows, const char *key, const char *value)
{
    mics_text_printf(rows, "%s\t%s\n", key, value);
}

/* same_rows.c: the rows that the two compare. Returns of the second: what reading weights did. */
void run_same_list_run(mics_text *rows, const mics_job *job);
mics_status run_same_list_data(mics_text *rows, const mics_job *job);

/* A hash of what they have: names, types, shapes, and the first elements of each tensor.
 *
 * Returns: MICS_OK; as mics_safetensors_read. */
mics_status run_same_hash_weights(const mics_safetensors *import, uint64_t *hash_out);

/* The error for jobs that differ: up to three keys with the ranks that have each value.
 *
 * texts:   rows of the jobs that there are, from run_same_add: (job_count).
 * job_of:  (ranks), which of them a rank has; job_count or above: one that is not listed.
 * Needs:   job_count >= 1, ranks >= 1.
 * Returns: MICS_ERR_INVALID, logged; MICS_ERR_MEMORY.
 */
mics_status run_same_fail(mics_memory *memory, const char *const *texts, int32_t job_count,
                          const int32_t *job_of, int32_t ranks);
