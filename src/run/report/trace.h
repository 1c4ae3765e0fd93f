// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The trace of some training steps: what every rank did when, gathered on rank 0 and written to
// OUT/trace.json.
#ifndef MICS_RUN_REPORT_TRACE_H
#define MICS_RUN_REPORT_TRACE_H

#include "mics/engine.h"
#include "mics/report.h"
#include "run/job.h"
#include "run/ranks/world.h"

// What one rank keeps of the steps to trace until it has seen the last of them.
typedef struct run_trace run_trace;

/* Allocates for the steps that the run file names and that are still to come.
 *
 * Returns: MICS_OK (*trace_out is NULL where there are none); MICS_ERR_MEMORY.
 * Owns:    close with run_trace_close; borrows job and rank.
 */
mics_status run_trace_open(const mics_job *job, run_rank *rank, run_trace **trace_out);
void run_trace_close(run_trace *trace);

/* Keeps the engine's newest step if it is to be traced. After the last of these, and after one that
 * ends the run (RUN_TELL_STOP), rank 0 gets all ranks' times, writes the file and says where it is.
 *
 * Needs:   called after each step; the engine at rest: its comm is used here.
 * Returns: MICS_OK, at once for trace NULL; as mics_comm_exchange; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Collective: yes.
 */
mics_status run_trace_step(run_trace *trace, const mics_engine *engine, int64_t step,
                           const mics_step_result *result);

// ---- trace_file.c: rank 0's ----

// One step of one rank, beside the times of its entries.
typedef struct run_traced_step {
    int64_t step;
    double step_us;
    double exposed_us[MICS_STEP_KINDS];
} run_traced_step;

// What one rank has kept.
typedef struct run_traced {
    int32_t rank;
    int32_t count; // steps
    const run_traced_step *steps;
    const mics_step_time *times; // by step, by entry of the training list; of the rank's own clock
    double clock_ahead_us;       // of rank 0's
    double clock_accuracy_us;    // of that
} run_traced;

typedef struct run_trace_file run_trace_file;

/* Opens OUT/trace.json. Owns: close with run_trace_file_close. */
mics_status run_trace_file_open(const mics_job *job, mics_memory *memory, int32_t count,
                                run_trace_file **file_out);

/* Adds a rank. Each once, in any order; `count` as given to open. */
void run_trace_file_add(run_trace_file *file, const run_traced *traced);

/* Adds the figures of all, completes the file, and tells a summary. */
mics_status run_trace_file_finish(run_trace_file *file);
void run_trace_file_close(run_trace_file *file);

#endif
