// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics report: one page of one run, or of several beside each other.
#include "base/file.h"
#include "cli.h"
#include "io/report/page.h"
#include "io/report/printer.h"
#include "mics/log.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BUCKETS = 2048 }; // of all runs, so that a page stays small; half of it of a single one

typedef struct report_options {
    const char *out;
    bool json;
} report_options;

#define AT(member) offsetof(report_options, member)
static const cli_option flags[] = {
    {"out", CLI_TEXT, "FILE.html", "the page; default: report.html in the first run's folder",
     AT(out), 0, 0},
    CELL_JSON(report_options),
};

// What is there and no page of ours is somebody else's.
static mics_status check_out(const char *path)
{
    char head[256] = "";
    MICS_TRY(mics_file_refuse_special(path));
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return MICS_OK;
    const size_t bytes = fread(head, 1, sizeof head - 1, file);
    fclose(file);
    if (bytes == 0 || strstr(head, "content=\"mics report\"") != NULL)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "%s: is there, and is no page of mics report; give another --out", path);
}

static mics_status replace(mics_memory *memory, const char *path, const mics_text *page)
{
    char *folder = NULL;
    MICS_TRY(mics_strdup(memory, path, &folder));
    char *slash = strrchr(folder, '/');
    const char *name = slash != NULL ? path + (slash - folder) + 1 : path;
    if (slash != NULL)
        slash[slash == folder] = '\0'; // "/" stays
    const char *in = slash != NULL ? folder : ".";
    const mics_status status =
        access(in, W_OK | X_OK) == 0
            ? mics_file_replace(memory, in, name, page->bytes, page->used)
            : mics_fail(mics_status_of_errno(errno), "%s: %s; give an --out that can be written",
                        in, strerror(errno));
    mics_free(memory, folder);
    return status;
}

static mics_status write_page(cli_call *call, const report_options *options, report_run *runs)
{
    const int32_t count = call->arguments.count;
    mics_text page = {.memory = call->memory};
    char *path = NULL;
    printer r = {.json = options->json};
    mics_status status = MICS_OK;
    MICS_TRY_OUT(options->out != NULL
                     ? mics_strdup(call->memory, options->out, &path)
                     : mics_file_join(call->memory, runs[0].path, "report.html", &path));
    MICS_TRY_OUT(check_out(path));
    call->running = true;
    MICS_TRY_OUT(report_page(&page, runs, count));
    MICS_TRY_OUT(replace(call->memory, path, &page));
    printer_text(&r, "%s: %d run%s, %s\n", path, (int)count, text_plural(count),
                 text_size((double)page.used).text);
    PRINTER_OBJECT(&r, NULL, cell_words("page", path), cell_int("runs", count),
                   cell_int("bytes", (int64_t)page.used));
out:
    mics_free(call->memory, path);
    mics_text_fini(&page);
    return status;
}

static mics_status run_report(cli_call *call)
{
    report_options options = {.out = NULL};
    report_run runs[MICS_CHART_SERIES] = {{0}};
    MICS_TRY(cli_parse(call, &options));
    mics_status status = MICS_OK;
    const int32_t count = call->arguments.count, buckets = BUCKETS / (count < 2 ? 2 : count);
    for (int32_t i = 0; i < count && status == MICS_OK; i++) {
        status = report_run_open(call->memory, call->arguments.items[i], buckets, 0, &runs[i]);
        if (status == MICS_OK && runs[i].history->last < 1)
            status = mics_fail(MICS_ERR_INVALID, "%s: no step is done yet; wait for the first one",
                               runs[i].path);
    }
    if (status == MICS_OK)
        status = write_page(call, &options, runs);
    for (int32_t i = 0; i < count; i++)
        report_run_close(&runs[i]);
    return status;
}

const cli_verb cmd_report = {
    .name = "report",
    .summary = "a page with the figures of a run, or of several beside each other",
    .arguments = "RUN...",
    .about =
        "Writes one HTML file with all that the folders of runs say: figures over the steps, what "
        "was\n"
        "predicted, a traced step, samples, the run file and the machine. It needs no network.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = MICS_CHART_SERIES,
    .run = run_report,
    .stopped = "no page was written",
};
