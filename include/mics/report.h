// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run tells people and machines: the progress line, metrics.jsonl, and the table of
// predicted against measured.
#ifndef MICS_REPORT_H
#define MICS_REPORT_H

#include "mics/log.h"
#include "mics/memory.h"
#include "mics/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

// One training step, of all ranks together where not said otherwise.
typedef struct mics_metrics {
    int64_t step, steps; // done, of how many
    double loss, lr, grad_norm;
    int64_t tokens; // trained on since the run began, this step's included
    double tokens_per_s, step_ms;
    double mfu;                // share of the machine's peak; NaN when that is not known
    int64_t memory_peak_bytes; // of the rank that used most
    int64_t sent_intra_bytes, sent_inter_bytes; // in this step
    double exposed_comm_ms;
} mics_metrics;

// ---- progress ----

typedef enum mics_progress_mode {
    MICS_PROGRESS_AUTO,  // live on a terminal (isatty, TERM not "dumb"), else plain
    MICS_PROGRESS_LIVE,  // one line that is written over
    MICS_PROGRESS_PLAIN, // a line each log_every steps, or every few seconds when that is 0
    MICS_PROGRESS_OFF    // nothing
} mics_progress_mode;

typedef struct mics_progress mics_progress;

/* Opens the progress display. Colour is used on a terminal unless NO_COLOR is set (no-color.org).
 *
 * Needs:   stream borrowed until close, NULL for standard output; log_every >= 0.
 * Returns: MICS_OK; MICS_ERR_MEMORY.
 * Owns:    close with mics_progress_close.        Threads: one at a time.
 */
mics_status mics_progress_open(mics_memory *memory, FILE *stream, mics_progress_mode mode,
                               int64_t log_every, mics_progress **progress_out);
/* Ends the live line and frees; NULL is allowed. */
void mics_progress_close(mics_progress *progress);

/* Shows a step. The first and the last always show. */
void mics_progress_step(mics_progress *progress, const mics_metrics *metrics);

/* Prints a line of its own ("validation loss 2.31") without tearing the live line. */
void mics_progress_note(mics_progress *progress, const char *format, ...) MICS_PRINTF(2, 3);

/* Ends the live line, so that others may print; the next step starts a new one. */
void mics_progress_break(mics_progress *progress);

// ---- metrics.jsonl ----

typedef struct mics_metrics_file mics_metrics_file;

/* Opens metrics.jsonl for appending, keeping the lines of steps up to `resume_step`; 0 is a new
 * run, which keeps none. What is dropped is dropped by writing a file aside and renaming it; a last
 * line that was cut short by a crash is dropped too.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_FORMAT (a line that is none of ours; the file is
 *          untouched); MICS_ERR_MEMORY.
 * Owns:    close with mics_metrics_close.
 */
mics_status mics_metrics_open(mics_memory *memory, const char *path, int64_t resume_step,
                              mics_metrics_file **file_out);

/* Appends one object and hands it to the system. Numbers that are not finite become null.
 *
 * Returns: MICS_OK; MICS_ERR_IO (a full disk, ...), logged.
 */
mics_status mics_metrics_write(mics_metrics_file *file, const mics_metrics *metrics);

/* Appends {"step": ..., "validation_loss": ...}. Step 0 is before training. */
mics_status mics_metrics_write_validation(mics_metrics_file *file, int64_t step, double loss);

/* Closes; NULL is allowed.
 *
 * Returns: MICS_OK; MICS_ERR_IO when the last bytes could not be written. Frees in any case.
 */
mics_status mics_metrics_close(mics_metrics_file *file);

// ---- predicted against measured ----

// One row; both in bytes.
typedef struct mics_compare_row {
    const char *label;
    int64_t predicted, measured;
} mics_compare_row;

/* Prints a table: label, predicted, measured, and "exact" or by how much they differ.
 *
 * Returns: MICS_OK; MICS_ERR_IO.
 */
mics_status mics_compare_print(FILE *stream, const char *title, const mics_compare_row *rows,
                               int32_t count);

#ifdef __cplusplus
}
#endif
#endif
