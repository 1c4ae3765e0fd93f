// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a job that runs: its engine, and what it has done so far.
#ifndef MICS_RUN_TRAINER_H
#define MICS_RUN_TRAINER_H

#include "job.h"
#include "mics/engine.h"
#include "trace.h"
#include "world.h"

// What only rank 0 has is NULL elsewhere; the rest of what was done is alike on all ranks.
struct run_trainer {
    mics_job *job;
    run_rank *rank;
    mics_engine *engine;
    mics_metrics_file *metrics;               // rank 0
    run_trace *trace;                         // NULL: no step is traced
    mics_optimizer_shard *shards;             // by unit; what this rank writes into checkpoints
    int32_t *row;                             // scratch of run_samples_read
    const run_samples *samples;               // what the batch source reads now
    int64_t first_sample;                     // of the running step, or validation batch
    bool begun;                               // training: validated before its first step
    int64_t step;                             // done
    double begin_us;                          // of the running step
    bool saved;                               // there is a checkpoint
    int64_t saved_step;                       // of the newest; 0 too where there is none
    int32_t memory_slot;                      // where the next copy in node memory goes
    bool memory_booked;                       // those copies are counted
    bool memory_told;                         // the program was told of the first
    double validation_first, validation_last; // NaN: none
    double evaluated;                         // loss, of run_trainer_evaluate
    mics_step_result newest;                  // step
    int64_t peak_bytes[MICS_MEM_TAGS + 1];    // largest of all ranks, once measured
};

/* Says in which phase this process is, on one of its ranks (mics_job_phase). */
void run_trainer_tell_phase(const run_trainer *self, int64_t step, bool saving, double seconds);

// ---- saving.c ----

/* Fills self->shards with what this rank owns, as the engine has it on the host
 * (mics_engine_download, until mics_engine_release). */
void run_saving_fill_shards(run_trainer *self);

/* What is saved with a step. */
mics_checkpoint_meta run_saving_meta(const run_trainer *self, int64_t step);

/* Saves a checkpoint of the step that was done last.     Collective: over ranks. */
mics_status run_saving_save(run_trainer *self, int64_t step);

// ---- trainer.c: all are for run_world_run, with the job as `ctx`, and collective over ranks ----

/* Opens a rank's engine and fills its parameters; ranks agree on how that went. */
mics_status run_trainer_open(void *ctx, run_rank *rank);

/* Trains up to step job->train_until. Returns: as mics_job_train. */
mics_status run_trainer_train(void *ctx, run_rank *rank);

/* Finds the validation loss. Returns: as mics_job_evaluate. */
mics_status run_trainer_evaluate(void *ctx, run_rank *rank);

/* Saves the newest step unless it is saved. Returns: as mics_job_save. */
mics_status run_trainer_save(void *ctx, run_rank *rank);

/* Calls job->write once, on rank 0, while the others wait for it as for files. Returns: what it
 * returned, on all ranks. */
mics_status run_trainer_write(void *ctx, run_rank *rank);

/* Frees what the rank holds, also after a failure; who ends later is waited for as for files.
 * Returns: MICS_OK; MICS_ERR_IO: the last metrics did not reach the disk. */
mics_status run_trainer_close(void *ctx, run_rank *rank);

#endif
