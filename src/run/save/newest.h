// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Resuming from the newest state that is good: a checkpoint on disk, or the copy that was found in
// node memory.
//
// Damage shows where it is read: in manifest and headers when a process opens the checkpoint, in
// setup (here); in the data when each rank reads its optimizer shards (restore.h). So nothing is
// read twice. Who finds damage tells the others, and all take the next older state, until one is
// good for all. What cannot be read at all (MICS_ERR_IO: a server that is away) is no damage, and
// ends the run; but a copy in node memory is then passed over too.
#pragma once

#include "run/job.h"
#include <stdbool.h>

enum { RUN_WHY_BYTES = 1024 };

typedef enum run_outcome { RUN_GOOD, RUN_DAMAGED, RUN_FAILED } run_outcome;

// What every member (a process, or a rank) says; the largest of each counts.
enum { RUN_SAYS_DAMAGED, RUN_SAYS_FAILED, RUN_SAYS_STEP, RUN_SAYS_MINUS_STEP, RUN_SAYS };

/* Whether a failure means that the candidate is damaged, or its run had diverged before it was
 * saved; or that a copy in node memory cannot be had. */
bool run_newest_is_damage(const mics_job *job, mics_status status);

/* Step of the candidate that is open; -1: none. */
int64_t run_newest_step(const mics_job *job);

/* What member `me` of `members` says (the candidate's step only if `says_step`). */
void run_newest_send(const mics_job *job, mics_status mine, int32_t me, int32_t members,
                     bool says_step, int64_t *values_out);

/* What came of all, by the largest values that were said. Of damage, why_out (RUN_WHY_BYTES) is
 * what the lowest member that found it says.
 *
 * comm:    whose ranks are the members; NULL: there is one alone.
 * Returns: MICS_OK; MICS_ERR_INVALID, alike on all: members have different candidates; what the
 *          transport returned.
 * Collective: over members.
 */
mics_status run_newest_recv(const mics_job *job, const int64_t *values, mics_comm *comm,
                            run_outcome *outcome_out, char *why_out);

/* Opens the newest state that was not passed over, in place of the one that is open. None was ever
 * saved: that is good too. Returns: as mics_checkpoint_open; MICS_ERR_INVALID: none is left. */
mics_status run_newest_open_next(mics_job *job);

/* Notes that the candidate is damaged; the first process says so. Returns: MICS_OK;
 * MICS_ERR_MEMORY. */
mics_status run_newest_pass_over(mics_job *job, const char *why);

/* Names what is resumed from, if something was passed over. */
void run_newest_log_instead(const mics_job *job);

/* Opens the newest state, in job->checkpoints_dir or node memory, whose manifest and headers are good,
 * the same one in all processes; none when none was ever saved. What is damaged is a warning, and
 * job->passed. Sets newest_path.
 *
 * Returns: MICS_OK; MICS_ERR_FORMAT, MICS_ERR_INVALID: there are checkpoints, and none is good, or
 *          processes find different ones; MICS_ERR_IO; MICS_ERR_MEMORY; what the transport
 *          returned. Logged; not the same on all processes.
 * Collective: over processes.
 */
mics_status run_job_open_newest(mics_job *job);
