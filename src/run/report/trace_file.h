// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// OUT/trace.json, of what every rank did when in some training steps; written by rank 0.
#pragma once

#include "mics/core/engine.h"
#include "mics/report.h"
#include "run/job.h"

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
