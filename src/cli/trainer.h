// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What one rank does in `mics train`.
#ifndef MICS_CLI_TRAINER_H
#define MICS_CLI_TRAINER_H

#include "job.h"
#include "launch.h"
#include "mics/engine.h"
#include "mics/report.h"
#include "trace.h"

// One rank's training. What only rank 0 has is NULL elsewhere.
typedef struct cli_trainer {
    cli_job *job;
    cli_rank *rank;
    mics_engine *engine;
    mics_progress *progress;                  // rank 0
    mics_metrics_file *metrics;               // rank 0
    cli_trace *trace;                         // NULL: no step is traced
    mics_piece *pieces;                       // by unit; what this rank writes into checkpoints
    int32_t *row;                             // scratch of cli_samples_read
    const cli_samples *samples;               // what the batch source reads now
    int64_t first_sample;                     // of the running step, or validation batch
    int64_t saved_step;                       // newest checkpoint; 0: none
    double validation_first, validation_last; // NaN: none
    mics_step_result newest;                  // step
    double begin_us;                          // of the running step
} cli_trainer;

/* One rank of a run, from engine to summary; `ctx` is the cli_job. For cli_world_run. */
mics_status cli_train_rank(void *ctx, cli_rank *rank);

// ---- summary.c ----

/* Before training: what is trained, on what, and what it will take (rank 0). */
void cli_print_beginning(const cli_job *job);

/* After training: losses, a sample of text, predicted against measured, and where everything is.
 *
 * Needs:   the engine closed; measured: peaks by tag and in total, the largest of all ranks.
 */
mics_status cli_print_end(const cli_trainer *trainer, const int64_t measured[MICS_MEM_TAGS + 1]);

#endif
