// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A run's folder as people look at it: `mics report`'s page, and where `mics watch` reads. All comes
// from the folder's files, so a copy of it on another machine will do.
#pragma once

#include "base/json.h"
#include "io/report/history.h"

typedef struct report_run {
    const char *path; // the folder, borrowed
    history *history;
    mics_json *resolved, *about; // resolved.json and about.json; NULL: there is none
} report_run;

/* Opens a run's folder and reads its metrics, as history_open.
 *
 * Returns: as history_open; MICS_ERR_INVALID, logged: it is no run's folder.
 * Owns:    close with report_run_close, which takes a zeroed one, too.
 */
mics_status report_run_open(mics_memory *memory, const char *path, int32_t bucket_count,
                            int64_t tail_bytes, report_run *run_out);
void report_run_close(report_run *run);

/* A number at a dotted path; NaN: there is none. `json` may be NULL. */
double report_number(const mics_json *json, const char *path);

/* Appends one HTML file that needs nothing of the network, and no script for its figures.
 *
 * Shapes:  runs: (count), each with a step.       Needs: 1 <= count <= MICS_CHART_SERIES.
 * Returns: MICS_OK; MICS_ERR_MEMORY, logged.
 */
mics_status report_page(mics_text *page, const report_run *runs, int32_t count);

/* timeline.c: appends the first traced step of rank 0, a bar an entry, a row a stream, and who waits
 * least. */
void report_timeline(mics_text *page, const char *folder);

// page.css and page.js.
extern const char report_css[], report_js[];
