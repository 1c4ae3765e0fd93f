// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "io/report/page.h"
#include "base/file.h"
#include "io/report/draw.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_JSON = 64 << 20, MAX_LINE = 8192, SAMPLES_BYTES = 64 << 10 };

// ---- runs ----

static mics_status load_json(mics_memory *memory, const char *folder, const char *name,
                             mics_json **json_out)
{
    char *path = NULL;
    MICS_TRY(mics_file_join(memory, folder, name, &path));
    const mics_status status =
        mics_file_is_there(path) ? mics_json_load(memory, path, MAX_JSON, json_out) : MICS_OK;
    mics_free(memory, path);
    return status;
}

mics_status report_run_open(mics_memory *memory, const char *path, int32_t bucket_count,
                            int64_t tail_bytes, report_run *run_out)
{
    char *metrics = NULL;
    report_run run = {.path = path};
    MICS_TRY(mics_file_join(memory, path, "metrics.jsonl", &metrics));
    mics_status status =
        mics_file_is_there(metrics)
            ? history_open(memory, metrics, bucket_count, tail_bytes, &run.history)
            : mics_fail(MICS_ERR_INVALID,
                        "%s: is not there; give the folder of a run that trains, or has trained "
                        "(its run.out)",
                        metrics);
    mics_free(memory, metrics);
    if (status == MICS_OK)
        status = load_json(memory, path, "resolved.json", &run.resolved);
    if (status == MICS_OK)
        status = load_json(memory, path, "about.json", &run.about);
    if (status == MICS_OK)
        *run_out = run;
    else
        report_run_close(&run);
    return status;
}

void report_run_close(report_run *run)
{
    history_close(run->history);
    mics_json_close(run->resolved);
    mics_json_close(run->about);
    *run = (report_run){0};
}

double report_number(const mics_json *json, const char *path)
{
    const mics_json_value *value = json != NULL ? mics_json_at(json, path) : NULL;
    return mics_json_is_number(value) ? mics_json_real(value) : NAN;
}

// ---- charts ----

// Any figure that is not listed has a chart of its own.
static const struct chart {
    const char *title, *figures;
} charts[] = {
    {"Loss, nats a token", "loss|validation_loss"},
    {"Learning rate", "lr"},
    {"Norm of all gradients, before clipping", "grad_norm"},
    {"Tokens a second", "tokens_per_s"},
    {"MFU: share of the peak FLOP/s", "mfu"},
    {"Time of a step, ms", "step_ms"},
    {"Peak memory of the rank that has held most, bytes", "memory_peak_bytes"},
    {"Bytes sent in a step, intra-node and inter-node", "sent_intra_bytes|sent_inter_bytes"},
    {"Exposed communication in a step, ms",
     "exposed_comm_ms|exposed_gather_ms|exposed_reduce_ms|exposed_second_hop_ms|exposed_agree_ms|"
     "exposed_copy_ms"},
    {"Waiting for saves, ms", "save_ms"},
    {"Waiting for the slowest rank in a step, ms", "slowest_wait_ms"},
    {"The slowest rank", "slowest_rank"},
    {NULL, "tokens|phase|best_step|best_validation_loss"}, // not drawn
};

// A run's figures differ in colour; of several runs colours tell the runs, and dashes the figures.
static void put_chart(mics_text *page, const struct chart *chart, const report_run *runs,
                      int32_t count)
{
    curve curves[CURVES_MAX];
    int32_t used = 0;
    for (int32_t r = 0; r < count; r++) {
        int32_t f = 0;
        for (const char *at = chart->figures; *at != '\0'; at += strspn(at, "|"), f++) {
            char name[HISTORY_NAME_BYTES];
            snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "|"), at);
            at += strcspn(at, "|");
            const history_figure *figure = history_find(runs[r].history, name);
            if (figure == NULL || used == CURVES_MAX)
                continue;
            curves[used] = (curve){.run = runs[r].history, .figure = figure};
            curves[used].colour = count > 1 ? r : f;
            curves[used].dash = f;
            snprintf(curves[used].name, sizeof curves->name, "%s%s%.70s", name,
                     count > 1 ? " of " : "", count > 1 ? runs[r].path : "");
            used++;
        }
    }
    if (used > 0 && chart->title != NULL)
        draw_curves(page, chart->title, curves, used);
}

static bool is_listed(const char *name)
{
    bool listed = false;
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        listed = listed || mics_text_is_among(name, charts[i].figures);
    return listed;
}

static void put_charts(mics_text *page, const report_run *runs, int32_t count)
{
    mics_text_printf(page, "<div class=\"charts\">\n");
    for (size_t i = 0; i < sizeof charts / sizeof *charts; i++)
        put_chart(page, &charts[i], runs, count);
    for (int32_t r = 0; r < count; r++) {
        for (int32_t f = 0; f < runs[r].history->figure_count; f++) {
            const char *name = runs[r].history->figures[f].name;
            bool before = is_listed(name);
            for (int32_t other = 0; other < r; other++)
                before = before || history_find(runs[other].history, name) != NULL;
            if (!before)
                put_chart(page, &(struct chart){name, name}, runs, count);
        }
    }
    mics_text_printf(page, "</div>\n");
}

// ---- the newest figures ----

// What the schedule says that a figure is stands in about.json under its name.
static void put_figure(mics_text *page, const report_run *run, const char *name)
{
    const history_figure *figure = history_find(run->history, name);
    char digits[32] = "none", path[16 + HISTORY_NAME_BYTES];
    snprintf(path, sizeof path, "predicted.%s", name);
    const double predicted = report_number(run->about, path);
    if (figure != NULL)
        draw_digits(figure->newest, digits);
    mics_text_printf(page, "<td>%s", digits);
    if (isfinite(predicted) && figure != NULL)
        mics_text_printf(page, predicted == figure->newest ? ", as predicted" : ", predicted %.17g",
                         predicted);
}

static void put_newest(mics_text *page, const report_run *runs, int32_t count)
{
    mics_text_printf(page, "<h2>Newest figures</h2>\n<div class=\"wide\"><table><tr><th>run");
    for (int32_t r = 0; r < count; r++) {
        mics_text_printf(page, "<th class=\"c%d\">", (int)r);
        draw_escaped(page, runs[r].path);
    }
    mics_text_printf(page, "\n<tr><th>step");
    for (int32_t r = 0; r < count; r++) {
        const double steps = report_number(runs[r].resolved, "run.steps");
        mics_text_printf(page, "<td>%lld", (long long)runs[r].history->last);
        mics_text_printf(page, isfinite(steps) ? " of %.0f" : "", steps);
        mics_text_printf(page, runs[r].history->stopped ? ", ended early" : "");
    }
    for (int32_t f = 0; f < runs[0].history->figure_count; f++) {
        mics_text_printf(page, "\n<tr><th>");
        draw_escaped(page, runs[0].history->figures[f].name);
        for (int32_t r = 0; r < count; r++)
            put_figure(page, &runs[r], runs[0].history->figures[f].name);
    }
    mics_text_printf(page,
                     "</table></div>\n<p>Predicted is what the schedule of a step says. One that "
                     "is saved, evaluated or compared also sends the parameter sync that "
                     "follows.</p>\n");
}

// ---- texts ----

// Lines that the first run's file lacks are marked.
static void put_file(mics_text *page, const char *title, const mics_json *json,
                     const mics_json *first)
{
    const char *at = json != NULL ? mics_json_text(json) : "";
    const char *other = first != NULL ? mics_json_text(first) : at;
    mics_text_printf(page, "<details><summary>%s%s</summary><pre>", title,
                     json != NULL ? "" : ": there is none");
    while (*at != '\0') {
        const size_t line = strcspn(at, "\n") + (strchr(at, '\n') != NULL);
        const bool marked = memmem(other, strlen(other), at, line) == NULL;
        mics_text_printf(page, marked ? "<mark>" : "");
        draw_escaped_bytes(page, at, line);
        mics_text_printf(page, marked ? "</mark>" : "");
        at += line;
    }
    mics_text_printf(page, "</pre></details>\n");
}

// The newest texts that the model wrote.
static void put_samples(mics_text *page, const char *folder)
{
    char path[4096], line[MAX_LINE];
    snprintf(path, sizeof path, "%s/samples.jsonl", folder);
    FILE *from = fopen(path, "re");
    if (from == NULL)
        return;
    // A shorter file is read as a whole; of a longer one the first part of a line is passed over.
    (void)fseek(from, -SAMPLES_BYTES, SEEK_END);
    const bool muted = mics_log_mute(true);
    while (fgets(line, sizeof line, from) != NULL) {
        mics_json *sample = NULL;
        const mics_status status =
            mics_json_parse_line(page->memory, path, line, strlen(line), &sample);
        if (status == MICS_ERR_MEMORY)
            page->status = status;
        if (status != MICS_OK)
            continue;
        const char *prompt = mics_json_string(mics_json_at(sample, "prompt"));
        const char *text = mics_json_string(mics_json_at(sample, "text"));
        mics_text_printf(page, "<details><summary>Sample after step %lld</summary><pre><b>",
                         (long long)mics_json_int(mics_json_at(sample, "step")));
        draw_escaped(page, prompt != NULL ? prompt : "");
        mics_text_printf(page, "</b>");
        draw_escaped(page, text != NULL ? text : "");
        mics_text_printf(page, "</pre></details>\n");
        mics_json_close(sample);
    }
    mics_log_mute(muted);
    fclose(from);
}

static void put_run(mics_text *page, const report_run *run, const report_run *first)
{
    const history *of = run->history;
    mics_text_printf(page, "<h2>");
    draw_escaped(page, run->path);
    mics_text_printf(page, "</h2>\n");
    if (of->width > 1)
        mics_text_printf(page,
                         "<p>Thinned out: its lines are means of %lld steps each, and between the "
                         "smallest and the largest value of these it is shaded.</p>\n",
                         (long long)of->width);
    if (of->damaged > 0)
        mics_text_printf(page, "<p>%lld of %lld lines of metrics.jsonl cannot be read.</p>\n",
                         (long long)of->damaged, (long long)of->lines);
    for (int32_t f = 0; f < of->figure_count; f++) {
        if (of->figures[f].nulls == 0 || isnan(of->figures[f].newest))
            continue;
        mics_text_printf(page, "<p>Not finite in %lld lines: ", (long long)of->figures[f].nulls);
        draw_escaped(page, of->figures[f].name);
        mics_text_printf(page, "</p>\n");
    }
    report_timeline(page, run->path);
    put_samples(page, run->path);
    put_file(page, "Run file, resolved", run->resolved, first->resolved);
    put_file(page, "Machine, and what was predicted", run->about, first->about);
}

// ---- the whole ----

mics_status report_page(mics_text *page, const report_run *runs, int32_t count)
{
    mics_text_printf(page, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                           "<meta name=\"generator\" content=\"mics report\"><meta "
                           "name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                           "<title>mics: ");
    draw_escaped(page, runs[0].path);
    mics_text_printf(page, "</title><style>\n%s</style></head><body>\n<h1>", report_css);
    draw_escaped(page, runs[0].path);
    mics_text_printf(page, count > 1 ? " and %d more</h1>\n" : "</h1>\n", (int)count - 1);
    put_charts(page, runs, count);
    put_newest(page, runs, count);
    for (int32_t r = 0; r < count; r++)
        put_run(page, &runs[r], &runs[0]);
    mics_text_printf(page, "<script>\n%s</script></body></html>\n", report_js);
    return mics_text_status(page);
}
