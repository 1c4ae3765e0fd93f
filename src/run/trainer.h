// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// One rank of a job that runs: its engine, and what it has done so far.
#ifndef MICS_RUN_TRAINER_H
#define MICS_RUN_TRAINER_H

#include "guard.h"
#include "job.h"
#include "mics/engine.h"
#include "run/ranks/world.h"
#include "run/report/reports.h"
#include "run/report/trace.h"
#include "run/save/best.h"
#include "run/save/saver.h"

// What only rank 0 has is NULL elsewhere; the rest of what was done is alike on all ranks.
struct run_trainer {
    mics_job *job;
    run_rank *rank;
    mics_engine *engine;
    run_reports reports; // rank 0
    run_trace *trace;    // NULL: no step is traced
    run_saver saver;
    bool pending;                             // saver.behind is under way, as all ranks know
    mics_optimizer_shard *shards;             // by unit; scratch of copies in node memory
    int32_t *row;                             // scratch of run_samples_read
    const run_samples *samples;               // what the batch source reads now
    int64_t first_sample;                     // of the running step, or validation batch
    int64_t validated;                        // step of the newest validation; -1: none
    int64_t sampled;                          // and of the newest text that was due; -1: none
    bool begun;                               // training: validated before its first step
    bool no_samples;                          // a text could not be written
    int64_t step;                             // done
    double begin_us;                          // of the running step
    double save_us;                           // waited for saving since the step before
    double copy_us;                           // and in this one, until the copy was made
    double complete_us;                       // of the running step, for completing it at its end
    mics_completions completions;             // since the step before
    bool saved;                               // there is a checkpoint
    int64_t saved_step;                       // of the newest; 0 too where there is none
    int64_t prune_due;                        // older ones go after the next good step; 0: none
    bool kept;                                // this run has made a copy in node memory
    int64_t kept_step;                        // of the newest
    int32_t memory_slot;                      // where the next one goes
    bool memory_booked;                       // those copies are counted
    bool memory_told;                         // the program was told of the first
    double validation_first, validation_last; // NaN: none
    double evaluated;                         // loss, of run_trainer_evaluate
    run_best best;                            // of validations
    mics_step_result newest;                  // step
    int64_t peak_bytes[MICS_MEM_TAGS + 1];    // largest of all ranks, once measured
    run_guard guard;
};

// ---- filling.c ----

/* Fills this rank's optimizer shards and loss scale from a checkpoint; without one with what the run
 * begins with. Needs what mics_engine_upload does. Returns: as it; what reading returned. */
mics_status run_filling_state(run_trainer *self, const mics_checkpoint *checkpoint);

/* On rank 0: opens the reports, and keeps what they hold of steps up to `step`.     Returns: as
 * run_reports_open. */
mics_status run_filling_reports(run_trainer *self, int64_t step);

/* Drops what they hold of steps behind `step`.     Returns: as run_filling_reports. */
mics_status run_filling_cut_reports(run_trainer *self, int64_t step);

// ---- share.c ----

/* Bytes of the copy that a rank saves from while it trains on, for an optimizer of so many states;
 * the largest of all ranks. Pure. */
size_t run_share_copy_bytes(const mics_schedule *schedule, int32_t states);

/* Fills `shards`, by unit, with one of `parts` equal parts of what this rank owns, as the engine has
 * it on the host (mics_engine_download, until mics_engine_release). */
void run_share_fill(const run_trainer *self, int64_t part, int64_t parts,
                    mics_optimizer_shard *shards);

/* Whether all numbers of `shards`, by unit, are finite: what a save holds must be.
 * Returns: MICS_OK; MICS_ERR_NUMERIC, logged with the state of which unit is not. */
mics_status run_share_check_finite(const run_trainer *self, const mics_optimizer_shard *shards,
                                   int64_t step);

/* What is saved with a step. */
mics_checkpoint_meta run_share_meta(const run_trainer *self, int64_t step);

// ---- saving.c: collective over ranks ----

/* Saves the step that was done last, unless it is saved, and waits for that.
 * Returns: MICS_OK: it is on disk; why not. */
mics_status run_saving_save(run_trainer *self);

/* The same at the run's end; then older checkpoints may go. */
mics_status run_saving_end(run_trainer *self);

/* Begins to save the step that was done last; waits for a save that is still under way.
 * Returns: MICS_OK, also when saving fails; MICS_ERR_NUMERIC: what was to be saved is not finite;
 *          what a collective returned. */
mics_status run_saving_begin(run_trainer *self);

/* Waits for a save that is under way. Returns: as run_saving_begin. */
mics_status run_saving_settle(run_trainer *self);

/* Ends what ranks have begun to save by themselves of the step that was done last, which is not to
 * count: on return it does on no node. Some ranks may have begun, and others not. */
void run_saving_drop(run_trainer *self);

/* Around mics_engine_step, whose status and result (self->newest) it is. Returns: `status`;
 * MICS_ERR_NUMERIC: as run_saving_begin. */
void run_saving_enter_step(run_trainer *self);
void run_saving_before_update(void *ctx); // the trainer; mics_engine_spec
mics_status run_saving_leave_step(run_trainer *self, mics_status status);

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
