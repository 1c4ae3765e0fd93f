// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Where a run's figures go, on rank 0: metrics.jsonl and, where the run file asks for them, event
// files for TensorBoard and a file for Prometheus.
//
// What cannot be written is no reason to lose a run: it is said once, and counted.
#pragma once

#include "config/config.h"
#include "mics/report.h"

typedef struct run_reports {
    mics_memory *memory;
    const mics_run *run; // NULL: not opened; the calls below then do nothing
    mics_metrics_file *metrics;
    mics_tensorboard *tensorboard; // NULL: none
    mics_csv *csv;                 // NULL: none
    mics_metrics_file *samples;    // NULL: the model writes no texts
    int64_t validated;             // step of the newest validation's line in the file; -1: none
    int64_t lost_lines;            // of metrics.jsonl
    bool lost_events;              // TensorBoard's end early
    bool lost_rows, lost_samples;
    // Of Prometheus' file.
    mics_metrics newest;
    double written_us; // when it was written; 0: never
    bool stale, lost_gauges;
} run_reports;

/* Opens them, keeping what they hold of steps up to `step`; `run` is borrowed until closed.
 * Returns: MICS_OK; as mics_metrics_open; MICS_ERR_INVALID: run.prometheus or run.csv is somebody's
 *          file. */
mics_status run_reports_open(mics_memory *memory, const mics_run *run, int64_t step,
                             run_reports *reports);

/* Drops what they hold of steps behind `step`. What was lost so far stays counted.
 * Returns: as run_reports_open, or as run_reports_close; they are open in any case that can be. */
mics_status run_reports_cut(run_reports *reports, int64_t step);

bool run_reports_opened(const run_reports *reports);
void run_reports_step(run_reports *reports, const mics_metrics *metrics);
void run_reports_validation(run_reports *reports, int64_t step, double loss,
                            const mics_preference_metrics *preference);

/* The run ends at `step`, as validation has not improved since `best_step`. */
void run_reports_stop(run_reports *reports, int64_t step, int64_t best_step, double best_loss);

/* A text that the model wrote after a step, in OUT/samples.jsonl. */
void run_reports_sample(run_reports *reports, int64_t step, const char *prompt, const char *text);

/* The largest step of a line with `key` in a report of a run's folder; -1: none has. Returns: false:
 * there is no such file that can be read (step_out untouched). */
bool run_reports_newest(mics_memory *memory, const mics_run *run, const char *name, const char *key,
                        int64_t *step_out);

/* Returns: MICS_OK; MICS_ERR_IO: the last lines of metrics.jsonl did not reach the disk. */
mics_status run_reports_close(run_reports *reports);
