// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a job that runs. Only trainer.c and trainer_open.c take it whole; what happens around a
// step are its followers.
#pragma once

#include "batches.h"
#include "judge.h"
#include "run/followers/followers.h"

struct run_trainer {
    run_context context; // engine NULL: not open
    run_progress progress;
    run_reports reports;
    run_judge judge;
    run_followers followers;
    void *memory[RUN_FOLLOWERS]; // of each
    run_batches batches;         // of training
    mics_scaler scaler;          // of the run's start
    run_step step;               // the newest
    bool open;                   // with all followers
    bool begun;                  // it has trained
    double begin_us;             // of the step, on the run's clock: time of no step is left out
    double evaluated;            // loss, of run_trainer_evaluate
    int64_t peak_bytes[MICS_MEM_TAGS + 1]; // largest of all ranks, once measured
};

// All are for run_world_run, with the job as `ctx`, and collective over ranks.

/* The rank's trainer. */
run_trainer *run_trainer_of(mics_job *job, const run_rank *rank);

/* Trains up to step job->train_until. Returns: as mics_job_train. */
mics_status run_trainer_train(void *ctx, run_rank *rank);

/* Finds the validation loss. Returns: as mics_job_evaluate. */
mics_status run_trainer_evaluate(void *ctx, run_rank *rank);

/* Saves the newest step, job->train_until, unless it is saved. Returns: as mics_job_save. */
mics_status run_trainer_save(void *ctx, run_rank *rank);

/* Calls job->write once, on rank 0, while the others wait for it as for files. Returns: what it
 * returned, on all ranks. */
mics_status run_trainer_write(void *ctx, run_rank *rank);

// ---- trainer_open.c ----

/* Opens a rank's engine and fills its parameters; ranks agree on how that went. */
mics_status run_trainer_open(void *ctx, run_rank *rank);

/* Frees what the rank holds, also after a failure; who ends later is waited for as for files.
 * Returns: MICS_OK; MICS_ERR_IO: the last metrics did not reach the disk. */
mics_status run_trainer_close(void *ctx, run_rank *rank);

// ---- trainer.c, for it ----

/* Tell the trainer's followers: mics_engine_spec.before_update, and run_saving.saved. */
void run_trainer_before_update(void *ctx);
void run_trainer_saved(void *ctx, int64_t step);
