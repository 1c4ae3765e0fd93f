// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// From which checkpoint a run resumes.
#ifndef MICS_RUN_SAVE_RESUME_H
#define MICS_RUN_SAVE_RESUME_H

#include "run/job.h"

/* Finds what to resume from, if anything: sets checkpoint, and the run keeps what it has resolved
 * (mics_run_keep). Needs the run, not yet resolved. `resume`: "auto", "none" or a folder.
 * Collective: over processes. */
mics_status run_job_find_checkpoint(mics_job *job, const char *resume);

/* Checks that nobody saved since the checkpoint was chosen, and that it is of the same run: sets
 * start_step and finished. Needs the corpora open, and the output folder locked. */
mics_status run_job_resume(mics_job *job);

/* The second half of that: that job->checkpoint is of the same run, and start_step. */
mics_status run_job_take_checkpoint(mics_job *job);

/* Whether a key of a model's config says where that came from, and not what the model is. */
bool run_config_is_remark(const char *key);

/* Adds to the error line that is kept back from which older step of the run it can go on, after
 * what job->checkpoint holds was found to be damaged. */
void run_job_advise_older(const mics_job *job);

#endif
