// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "reports.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "mics/log.h"
#include <stdio.h>
#include <string.h>

// Prometheus reads some four times a minute.
static const double GAUGES_EVERY_US = 5e6;

static bool asked(const char *where)
{
    return strcmp(where, "none") != 0;
}

bool run_reports_opened(const run_reports *reports)
{
    return reports->run != NULL;
}

// The first failure is told with its cause, those behind it not.
static void keep(bool *lost, const char *where, mics_status written)
{
    if (written != MICS_OK && !*lost)
        mics_log(MICS_LOG_WARNING, "%s lacks what could not be written; training goes on", where);
    *lost = *lost || written != MICS_OK;
}

static mics_status open_lines(const run_reports *reports, const char *name, int64_t step,
                              mics_metrics_file **file_out)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(reports->memory, reports->run->out, name, &path));
    const mics_status status = mics_metrics_open(reports->memory, path, step, file_out);
    mics_free(reports->memory, path);
    return status;
}

// A disk that fails is no reason to lose a run; somebody else's file is one not to begin.
static mics_status open_table(run_reports *reports, int64_t step)
{
    const char *path = reports->run->csv;
    mics_log_hold(false);
    const mics_status status = mics_csv_open(reports->memory, path, step, &reports->csv);
    const bool foreign = status == MICS_ERR_INVALID;
    char why[1024];
    if (!foreign && status != MICS_OK && mics_log_take(why, sizeof why))
        mics_log(MICS_LOG_WARNING, "%s", why);
    mics_log_release(foreign, -1);
    if (foreign)
        return status;
    keep(&reports->lost_rows, path, status);
    return MICS_OK;
}

// `anew`: the run begins, and what a table holds is another's.
static mics_status open_files(run_reports *reports, int64_t step, bool anew)
{
    mics_status status = open_lines(reports, "metrics.jsonl", step, &reports->metrics);
    if (!run_reports_newest(reports->memory, reports->run, "metrics.jsonl", "validation_loss",
                            &reports->validated))
        reports->validated = -1;
    if (status == MICS_OK && reports->run->sample_every > 0)
        status = open_lines(reports, "samples.jsonl", step, &reports->samples);
    if (status == MICS_OK && asked(reports->run->csv))
        status = open_table(reports, anew ? -1 : step);
    if (status == MICS_OK && asked(reports->run->tensorboard)) {
        const bool before = mics_log_demote(true);
        keep(&reports->lost_events, reports->run->tensorboard,
             mics_tensorboard_open(reports->memory, reports->run->tensorboard, step,
                                   &reports->tensorboard));
        mics_log_demote(before);
    }
    return status;
}

static mics_status close_files(run_reports *reports)
{
    const mics_status events = mics_tensorboard_close(reports->tensorboard);
    const mics_status rows = mics_csv_close(reports->csv);
    const mics_status texts = mics_metrics_close(reports->samples);
    const mics_status lines = mics_metrics_close(reports->metrics);
    reports->tensorboard = NULL;
    reports->csv = NULL;
    reports->samples = NULL;
    reports->metrics = NULL;
    const mics_status all[] = {lines, events, rows, texts};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        MICS_TRY(all[i]);
    return MICS_OK;
}

// The file is replaced again and again: it must be nobody else's.
static mics_status check_gauges(const mics_run *run)
{
    static const char begin[] = "# HELP mics_";
    char head[sizeof begin] = "";
    FILE *file;
    if (!asked(run->prometheus))
        return MICS_OK;
    if (!mics_text_ends(run->prometheus, ".prom"))
        return mics_json_fail(run->json, "run.prometheus", MICS_ERR_INVALID,
                              "%s: node exporter's collector reads files that end in .prom; name "
                              "one",
                              run->prometheus);
    file = fopen(run->prometheus, "re");
    if (file == NULL)
        return MICS_OK;
    const size_t got = fread(head, 1, sizeof begin - 1, file);
    fclose(file);
    if (got == 0 || strcmp(head, begin) == 0)
        return MICS_OK;
    return mics_json_fail(run->json, "run.prometheus", MICS_ERR_INVALID,
                          "%s: is there, and no run wrote it; name another file, or move it away",
                          run->prometheus);
}

mics_status run_reports_open(mics_memory *memory, const mics_run *run, int64_t step,
                             run_reports *reports)
{
    *reports = (run_reports){.memory = memory, .run = run};
    MICS_TRY(check_gauges(run));
    return open_files(reports, step, step == 0);
}

mics_status run_reports_cut(run_reports *reports, int64_t step)
{
    if (!run_reports_opened(reports))
        return MICS_OK;
    const mics_status closed = close_files(reports);
    const mics_status opened = open_files(reports, step, false);
    return closed != MICS_OK ? closed : opened;
}

// ---- what is written ----

static void keep_line(run_reports *reports, mics_status written)
{
    if (written != MICS_OK && reports->lost_lines++ == 0)
        mics_log(MICS_LOG_WARNING,
                 "%s/metrics.jsonl lacks what could not be written; training goes on",
                 reports->run->out);
}

static void write_gauges(run_reports *reports)
{
    const char *path = reports->run->prometheus;
    reports->written_us = mics_clock_us();
    reports->stale = false;
    keep(&reports->lost_gauges, path,
         mics_prometheus_write(reports->memory, path, reports->run->out, &reports->newest));
}

void run_reports_step(run_reports *reports, const mics_metrics *metrics)
{
    if (!run_reports_opened(reports))
        return;
    const bool before = mics_log_demote(true);
    keep_line(reports, reports->metrics != NULL ? mics_metrics_write(reports->metrics, metrics)
                                                : MICS_ERR_IO);
    if (reports->tensorboard != NULL && !reports->lost_events)
        keep(&reports->lost_events, reports->run->tensorboard,
             mics_tensorboard_write(reports->tensorboard, metrics));
    if (reports->csv != NULL && !reports->lost_rows)
        keep(&reports->lost_rows, reports->run->csv, mics_csv_write(reports->csv, metrics));
    if (asked(reports->run->prometheus) && !reports->lost_gauges) {
        reports->newest = *metrics;
        reports->stale = true;
        if (reports->written_us == 0 || mics_clock_us() - reports->written_us > GAUGES_EVERY_US)
            write_gauges(reports);
    }
    mics_log_demote(before);
}

void run_reports_validation(run_reports *reports, int64_t step, double loss,
                            const mics_preference_metrics *preference)
{
    if (!run_reports_opened(reports) || step == reports->validated)
        return; // a run that resumes behind a validation has its line
    const bool before = mics_log_demote(true);
    keep_line(reports, reports->metrics != NULL
                           ? mics_metrics_write_validation(reports->metrics, step, loss, preference)
                           : MICS_ERR_IO);
    if (reports->tensorboard != NULL && !reports->lost_events)
        keep(&reports->lost_events, reports->run->tensorboard,
             mics_tensorboard_write_validation(reports->tensorboard, step, loss));
    if (reports->csv != NULL && !reports->lost_rows)
        keep(&reports->lost_rows, reports->run->csv,
             mics_csv_write_validation(reports->csv, step, loss));
    mics_log_demote(before);
}

void run_reports_stop(run_reports *reports, int64_t step, int64_t best_step, double best_loss)
{
    if (!run_reports_opened(reports) || reports->metrics == NULL)
        return;
    const bool before = mics_log_demote(true);
    keep_line(reports, mics_metrics_write_stop(reports->metrics, step, best_step, best_loss));
    mics_log_demote(before);
}

void run_reports_sample(run_reports *reports, int64_t step, const char *prompt, const char *text)
{
    if (!run_reports_opened(reports) || reports->samples == NULL || reports->lost_samples)
        return;
    const bool before = mics_log_demote(true);
    keep(&reports->lost_samples, "samples.jsonl",
         mics_metrics_write_sample(reports->samples, step, prompt, text));
    mics_log_demote(before);
}

bool run_reports_newest(mics_memory *memory, const mics_run *run, const char *name, const char *key,
                        int64_t *step_out)
{
    char *path = NULL;
    const bool muted = mics_log_mute(true);
    mics_status status = mics_file_join(memory, run->out, name, &path);
    if (status == MICS_OK)
        status = mics_metrics_newest(memory, path, key, step_out);
    mics_log_mute(muted);
    mics_free(memory, path);
    return status == MICS_OK;
}

mics_status run_reports_close(run_reports *reports)
{
    if (!run_reports_opened(reports))
        return MICS_OK;
    const bool before = mics_log_demote(true);
    if (reports->stale)
        write_gauges(reports);
    mics_log_demote(before);
    if (reports->lost_lines > 1)
        mics_log(MICS_LOG_WARNING, "%s/metrics.jsonl lacks %lld lines", reports->run->out,
                 (long long)reports->lost_lines);
    const mics_status status = close_files(reports);
    reports->run = NULL;
    return status;
}
