// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What a run tells people and machines: the progress line, metrics.jsonl, files for TensorBoard,
// CSV and Prometheus, the table of predicted against measured, and traces of what happened when.
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

// What the routers of a mixture of experts did in a step: means over all sequences and layers.
typedef struct mics_router_metrics {
    bool any;       // false: the model has no experts
    double entropy; // of a token's probabilities, nats
    double fullest; // tokens that chose a sequence's fullest expert; 1: as many as on average
    double balance; // the loss that balances, without its factor
    double dropped; // share of tokens' choices that full experts did not take
} mics_router_metrics;

// Of pairs, means over those of a step or a validation, by TRL's names.
typedef struct mics_preference_metrics {
    bool any;                // the objective has pairs; else the rest is 0
    double chosen, rejected; // rewards: beta times an answer's log-probability less its reference's
    double accuracies;       // share of pairs whose chosen reward is the larger one
    double logps_chosen, logps_rejected;
} mics_preference_metrics;

// Of local steps.
typedef struct mics_island_metrics {
    int32_t islands;                                  // 0: there are none, and the rest is 0
    int32_t updated;                                  // of them: those that trained the step
    int64_t meeting_intra_bytes, meeting_inter_bytes; // of what was sent: for meetings
    double exposed_meeting_ms; // of exposed_comm_ms: for meetings, and what all islands agree on
} mics_island_metrics;

// One training step, of all ranks together where not said otherwise.
typedef struct mics_metrics {
    int64_t step, steps;  // done, of how many
    int32_t phase;        // of the run, from 1 on; 0: it has none
    int32_t slowest_rank; // that the others of rank 0's island wait for; -1: not known yet
    double loss, lr, grad_norm;
    int64_t tokens;               // trained on since the run began, this step's included
    double tokens_per_s, step_ms; // since the end of the step before
    double mfu;                   // share of the machine's peak; NaN when that is not known
    int64_t memory_peak_bytes;    // of the rank that has held most, so far
    int64_t sent_intra_bytes, sent_inter_bytes; // in this step
    // How long rank 0's computation waited for collectives: in all, and its parts.
    double exposed_comm_ms;
    double exposed_gather_ms;     // parameters: gathers and parameter sync
    double exposed_reduce_ms;     // first hop
    double exposed_second_hop_ms; // what crosses to other gradient groups, once a step
    double exposed_agree_ms;      // loss and norm
    double exposed_copy_ms;       // beside them: for activations from and to host memory
    double save_ms;         // that training waited for saving between the step before and this one
    double slowest_wait_ms; // how long in a step, mean of the newest 20
    mics_router_metrics router;
    mics_preference_metrics preference;
    mics_island_metrics islands;
} mics_metrics;

// ---- progress ----
// Where a display is NULL the calls below show nothing.

typedef enum mics_progress_mode {
    MICS_PROGRESS_AUTO, // live on a terminal (isatty, TERM not "dumb"), else plain
    MICS_PROGRESS_LIVE, // one line that is written over
    MICS_PROGRESS_PLAIN // a line each log_every steps, or every few seconds when that is 0
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
/* Ends the live line and frees. */
void mics_progress_close(mics_progress *progress);

// The four below do nothing where `progress` is NULL.

/* Shows a step. The first and the last always show. */
void mics_progress_step(mics_progress *progress, const mics_metrics *metrics);

/* Prints a line of its own ("validation loss 2.31") without tearing the live line. */
void mics_progress_note(mics_progress *progress, const char *format, ...) MICS_PRINTF(2, 3);

/* Shows how far other long work than training is, where it is long: on a terminal a line that is
 * erased at the end (done == total), elsewhere a line after some seconds and then ever more rarely.
 * Work of another name begins anew.
 *
 * Needs:   0 <= done <= total, total >= 1; what: as long as it goes on.
 */
void mics_progress_work(mics_progress *progress, const char *what, int64_t done, int64_t total);

/* Ends the live line, so that others may print; the next step starts a new one. */
void mics_progress_break(mics_progress *progress);

// ---- metrics.jsonl ----

typedef struct mics_metrics_file mics_metrics_file;

/* Reads a metrics.jsonl: every line is one object of ours, and steps ascend. Each problem is told,
 * of many the first ones and how many more there are.
 *
 * Returns: MICS_OK, whatever was found; MICS_ERR_IO: it cannot be read; MICS_ERR_MEMORY. Drops what
 *          mics_log_hold keeps back.
 */
mics_status mics_metrics_verify(mics_memory *memory, const char *path,
                                void (*problem)(void *ctx, const char *line), void *ctx,
                                int64_t *lines_out);

/* Opens metrics.jsonl for appending, keeping the lines of steps up to `resume_step`; 0 is a new
 * run, which keeps none. What is dropped is dropped by writing a file aside and renaming it; a last
 * line that was cut short by a crash is dropped too.
 *
 * Needs:   resume_step >= 0.
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

enum { MICS_METRICS_TEXT_BYTES = 4096 }; // more than any step's figures take

/* The same object as text, NUL-terminated: for a program that hands it on.
 *
 * Needs:   a text of `capacity` bytes; MICS_METRICS_TEXT_BYTES are enough.
 * Returns: MICS_OK; MICS_ERR_INVALID (it does not fit), MICS_ERR_MEMORY, logged.    Threads: any.
 */
mics_status mics_metrics_text(const mics_metrics *metrics, char *text, size_t capacity);

/* Appends {"step": ..., "validation_loss": ...}, and what there is of pairs as "eval_". Step 0 is before
 * training.
 *
 * Units:   nats a token.
 * Needs:   step >= 0.
 * Returns: as mics_metrics_write.
 */
mics_status mics_metrics_write_validation(mics_metrics_file *file, int64_t step, double loss,
                                          const mics_preference_metrics *preference);

/* Appends {"step": ..., "stopped": "no improvement", "best_step": ..., "best_validation_loss": ...};
 * 0 and NaN, written as null: no loss was a number.
 *
 * Units:   nats a token.
 * Needs:   step >= 0.
 * Returns: as mics_metrics_write.
 */
mics_status mics_metrics_write_stop(mics_metrics_file *file, int64_t step, int64_t best_step,
                                    double best_loss);

/* Appends {"step": ..., "prompt": ..., "text": ...}, for a file of texts; a text that is too long
 * for a line, or ends inside a character, is cut.
 *
 * Needs:   step >= 0; a prompt of less than 1000 bytes.
 * Returns: as mics_metrics_write; MICS_ERR_MEMORY.
 */
mics_status mics_metrics_write_sample(mics_metrics_file *file, int64_t step, const char *prompt,
                                      const char *text);

/* Calls `each` for every validation of a metrics.jsonl up to step `last`, in the order in which they
 * stand; NaN is a loss that was not finite. No file has none, and damaged lines are passed over.
 *
 * Needs:   `each` is not NULL.
 * Units:   nats a token.
 * Returns: MICS_OK; MICS_ERR_IO.
 */
mics_status mics_metrics_validations(mics_memory *memory, const char *path, int64_t last,
                                     void (*each)(void *ctx, int64_t step, double loss), void *ctx);

/* The largest step of a line that has `key` in such a file, or in one of texts; -1: none has.
 * Lines that are damaged, or longer than those of ours, do not count.
 *
 * Returns: MICS_OK; MICS_ERR_IO (also: there is no file).
 */
mics_status mics_metrics_newest(mics_memory *memory, const char *path, const char *key,
                                int64_t *step_out);

/* Closes; NULL is allowed.
 *
 * Returns: MICS_OK; MICS_ERR_IO when the last bytes could not be written. Frees in any case.
 */
mics_status mics_metrics_close(mics_metrics_file *file);

// ---- TensorBoard ----

// An event file in a folder that TensorBoard watches, beside those of earlier starts of the run.
typedef struct mics_tensorboard mics_tensorboard;

/* Begins a new event file, and the folder if there is none. TensorBoard no longer shows what older
 * files of the folder have of steps behind `resume_step`; 0 is a new run.
 *
 * Needs:   resume_step >= 0.
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    close with mics_tensorboard_close.      Threads: one at a time.
 * Source:  TFRecord and event.proto of TensorFlow.
 */
mics_status mics_tensorboard_open(mics_memory *memory, const char *folder, int64_t resume_step,
                                  mics_tensorboard **file_out);

/* Appends a step's figures as scalars (fp32, which is what TensorBoard keeps): train/loss,
 * train/learning_rate, speed/step_ms, communication/exposed_ms ... NaNs are left out.
 *
 * Returns: MICS_OK; MICS_ERR_IO (a full disk, ...), logged; the file then ends with the record
 *          before.
 */
mics_status mics_tensorboard_write(mics_tensorboard *file, const mics_metrics *metrics);

/* Appends validation/loss. Step 0 is before training.
 *
 * Units:   nats a token.
 * Needs:   step >= 0.
 * Returns: as mics_tensorboard_write.
 */
mics_status mics_tensorboard_write_validation(mics_tensorboard *file, int64_t step, double loss);

/* Closes; NULL is allowed.
 *
 * Returns: MICS_OK; MICS_ERR_IO when the last bytes could not be written. Frees in any case.
 */
mics_status mics_tensorboard_close(mics_tensorboard *file);

// ---- CSV ----

// A table of the figures of metrics.jsonl: a header, then a row a step with the same names, in the
// same order and with the same digits; the last column is validation_loss. A validation has a row
// of its own, in which the other figures are empty. A number that is not finite is empty.
typedef struct mics_csv mics_csv;

/* Opens for appending, keeping the rows of steps up to `resume_step`; -1 is a new run, which has
 * none: a file with rows is renamed before, to the first of `path`.old, `path`.old2, ... that is
 * not there. What is dropped is dropped by renaming a file that was written aside.
 *
 * Needs:   resume_step >= -1.
 * Returns: MICS_OK; MICS_ERR_INVALID: the file is there, and its header is another; MICS_ERR_IO;
 *          MICS_ERR_MEMORY.
 * Owns:    close with mics_csv_close.              Threads: one at a time.
 * Source:  RFC 4180, with newlines alone.
 */
mics_status mics_csv_open(mics_memory *memory, const char *path, int64_t resume_step,
                          mics_csv **csv_out);

/* Appends the row of a step, or of a validation.
 *
 * Needs:   step >= 0.     Units: as mics_metrics; a validation's loss in nats a token.
 * Returns: MICS_OK; MICS_ERR_IO (a full disk, ...), logged; the file then ends with the row before.
 */
mics_status mics_csv_write(mics_csv *csv, const mics_metrics *metrics);
mics_status mics_csv_write_validation(mics_csv *csv, int64_t step, double loss);

/* Closes; NULL is allowed.
 *
 * Returns: MICS_OK; MICS_ERR_IO when the last bytes could not be written. Frees in any case.
 */
mics_status mics_csv_close(mics_csv *csv);

// ---- Prometheus ----

/* Writes a step's figures as gauges (mics_loss{run="..."} ...), named as in metrics.jsonl, for the
 * textfile collector of Prometheus' node exporter; what is at `path` is replaced by renaming.
 *
 * Needs:   path ends in .prom where the collector is to see it; run: the label's value.
 * Returns: MICS_OK; MICS_ERR_IO, logged; MICS_ERR_MEMORY.
 * Source:  prometheus.io, "Exposition formats".      Threads: any, one a path.
 */
mics_status mics_prometheus_write(mics_memory *memory, const char *path, const char *run,
                                  const mics_metrics *metrics);

// ---- predicted against measured ----

// One row; both in bytes.
typedef struct mics_compare_row {
    const char *label;
    int64_t predicted, measured;
} mics_compare_row;

/* Prints a table: label, predicted, measured, and "exact" or by how much they differ.
 *
 * Units:   bytes.
 * Needs:   rows: (count), count >= 0.
 * Returns: MICS_OK; MICS_ERR_IO.
 */
mics_status mics_compare_print(FILE *stream, const char *title, const mics_compare_row *rows,
                               int32_t count);

// ---- traces ----
// Chrome's trace-event format, which ui.perfetto.dev and chrome://tracing show: events on tracks of
// processes, here the streams of ranks. Times are microseconds of one clock for all processes, and
// are kept to the nanosecond; names are cut at 255 bytes, and bytes in them that are no UTF-8
// become '?'.
//
// Source:  "Trace Event Format", Google, 2016.

typedef struct mics_trace mics_trace;

// Tracks of a process.
enum { MICS_TRACE_TRACKS = 64 };

// What is known about an event: a text, or else a number.
typedef struct mics_trace_arg {
    const char *name;
    const char *text; // NULL: `value`
    double value;
} mics_trace_arg;

typedef struct mics_trace_event {
    int32_t process, track;
    const char *name;     // "gather h.3"
    const char *category; // what one would filter by
    double begin_us, end_us;
    const mics_trace_arg *args;
    int32_t arg_count;
} mics_trace_event;

/* Opens a trace. It is written aside (PATH.aside), so that PATH is at all times a whole trace or
 * what it was before.
 *
 * Returns: MICS_OK; MICS_ERR_IO; MICS_ERR_MEMORY.
 * Owns:    close with mics_trace_close.        Threads: one at a time.
 */
mics_status mics_trace_open(mics_memory *memory, const char *path, mics_trace **trace_out);

// The first of these calls that fails logs why; the later ones then do nothing, and
// mics_trace_finish returns that failure. Needs process >= 0, 0 <= track < MICS_TRACE_TRACKS.

/* Names a process; they are shown in ascending order.
 *
 * Needs:   process >= 0.
 */
void mics_trace_name_process(mics_trace *trace, int32_t process, const char *name);

/* Names a track of a process; the same.
 *
 * Needs:   process >= 0, 0 <= track < MICS_TRACE_TRACKS.
 */
void mics_trace_name_track(mics_trace *trace, int32_t process, int32_t track, const char *name);

/* Writes an event. Those of one track must not overlap; their order is free.
 *
 * MICS_ERR_INVALID: a time is not finite or beyond 1e15, or the end is before the begin.
 */
void mics_trace_write(mics_trace *trace, const mics_trace_event *event);

/* Draws an arrow from the end of an event that was written to the begin of another: `to` waited for
 * `from`. */
void mics_trace_arrow(mics_trace *trace, const mics_trace_event *from, const mics_trace_event *to);

/* Figures about the whole trace, kept under "otherData": a text, a number, an array of numbers.
 * Numbers that are not finite become null. Each name once.
 *
 * Shapes:  values: (count).
 * Units:   the caller's; the name should say.
 * Needs:   count >= 0.
 */
void mics_trace_note_text(mics_trace *trace, const char *name, const char *text);
void mics_trace_note_real(mics_trace *trace, const char *name, double value);
void mics_trace_note_reals(mics_trace *trace, const char *name, const double *values,
                           int32_t count);

/* Completes the trace, brings it to disk and renames it to its path. Nothing may be written after.
 *
 * Returns: MICS_OK; the first failure of any call; MICS_ERR_IO. What was there before stays then.
 */
mics_status mics_trace_finish(mics_trace *trace);

/* Frees; a trace that was not finished is dropped. NULL is allowed. */
void mics_trace_close(mics_trace *trace);

// ---- chart ----
// A picture of a few curves over a few sizes, as SVG: for reports, on paper too. Colours are those
// of Okabe and Ito, which people of all kinds of colour vision tell apart; lines differ in dashes
// and marks besides, and are named where they end.

enum { MICS_CHART_SERIES = 8 };

typedef struct mics_chart_series {
    const char *name;
    const double *y; // by place on the x axis; NaN: none there
} mics_chart_series;

typedef struct mics_chart {
    const char *title;
    const char *subtitle;                        // NULL: none
    const char *x_label, *y_label;               // with units
    const char *const *x_texts;                  // ticks, evenly spaced, ascending
    int32_t x_count;                             // at least 1
    mics_chart_series series[MICS_CHART_SERIES]; // the first is the one that matters
    int32_t series_count;
    const char *note; // below the picture; NULL: none
} mics_chart;

/* The picture as text. The y axis begins at 0; a series without any value is left out.
 *
 * Needs:   x_count >= 1; 1 <= series_count <= MICS_CHART_SERIES; values >= 0 or NaN.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a need, or no value at all; MICS_ERR_MEMORY.
 * Owns:    the caller frees *svg_out with mics_free.      Threads: any.
 */
mics_status mics_chart_svg(mics_memory *memory, const mics_chart *chart, char **svg_out);

// ---- scatter ----
// A picture of points by two figures of which less is better, as time and price, as SVG. A line
// joins those of the front, which no other beats in both. The x axis is logarithmic, the y axis
// begins at 0.

enum { MICS_SCATTER_MAX_POINTS = 256 };

typedef struct mics_scatter_point {
    const char *name;
    double x, y; // NaN: not known, and not drawn
    bool front;
} mics_scatter_point;

typedef struct mics_scatter {
    const char *title;
    const char *subtitle;          // NULL: none
    const char *x_label, *y_label; // with units
    const mics_scatter_point *points;
    int32_t count;
    const char *note; // below the picture; NULL: none
} mics_scatter;

/* The picture as text. Every point has a mark; names that find no place are left out, the front's
 * last.
 *
 * Shapes:  points: (count).
 * Needs:   1 <= count <= MICS_SCATTER_MAX_POINTS; x > 0, y >= 0, finite or NaN.
 * Returns: MICS_OK; MICS_ERR_INVALID, logged: a need, or no point at all; MICS_ERR_MEMORY.
 * Owns:    the caller frees *svg_out with mics_free.      Threads: any.
 */
mics_status mics_scatter_svg(mics_memory *memory, const mics_scatter *scatter, char **svg_out);

#ifdef __cplusplus
}
#endif
#endif
