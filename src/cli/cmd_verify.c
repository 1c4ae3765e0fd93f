// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics verify: every checksum and invariant of a checkpoint, or of all of a run's.
#include "base/clock.h"
#include "cli.h"
#include "io/report/printer.h"
#include "mics/log.h"
#include "mics/run.h"

static const double PROGRESS_EVERY_US = 5e6;

typedef struct verify_options {
    printer report;
    bool quiet;
    double shown_us; // when progress was shown last
} verify_options;

#define AT(member) offsetof(verify_options, member)
static const cli_option flags[] = {
    {"json", CLI_FLAG, NULL, "print one JSON object", AT(report.json), 0, 0},
    {"quiet", CLI_FLAG, NULL, "print nothing but what is wrong, and show no progress", AT(quiet), 0,
     0},
};

enum { DEPTH_OF_ITEMS = 2 };

// In JSON the problems of an item come before it, so they open the object that it ends.
static void begin_item(printer *r)
{
    if (r->depth > DEPTH_OF_ITEMS)
        return;
    printer_open(r, NULL, '{', false);
    printer_open(r, "problems", '[', false);
}

static void print_problem(void *ctx, const char *line)
{
    printer *r = &((verify_options *)ctx)->report;
    printer_text(r, "%s\n", line);
    begin_item(r);
    PRINTER_ROW(r, cell_words(NULL, line));
}

static void show_progress(void *ctx, const char *path, int64_t done, int64_t bytes)
{
    verify_options *print = ctx;
    const double now_us = mics_clock_us();
    if (now_us - print->shown_us < PROGRESS_EVERY_US)
        return;
    print->shown_us = now_us;
    mics_log(MICS_LOG_INFO, "verifying %s: %s of %s", path, text_size((double)done).text,
             text_size((double)bytes).text);
}

static void print_item_line(const printer *r, const mics_verified *what)
{
    printer_text(r, "%s: ", what->path);
    if (what->problems > 0)
        printer_text(r, "%lld problem%s\n", (long long)what->problems, text_plural(what->problems));
    else if (what->step >= 0)
        printer_text(r, "good: step %lld, %d files, %s\n", (long long)what->step, (int)what->files,
                     text_size((double)what->bytes).text);
    else if (what->lines > 0)
        printer_text(r, "good: %lld lines\n", (long long)what->lines);
    else
        printer_text(r, "good\n");
}

static void print_item(void *ctx, const mics_verified *what)
{
    verify_options *print = ctx;
    printer *r = &print->report;
    if (!print->quiet || what->problems > 0)
        print_item_line(r, what);
    begin_item(r);
    printer_close(r);
    PRINTER_ROW(r, cell_words("path", what->path));
    if (what->step >= 0)
        PRINTER_ROW(r, cell_int("step", what->step));
    PRINTER_ROW(r, cell_int("files", what->files), cell_int("bytes", what->bytes),
                cell_flag("good", what->problems == 0));
    printer_close(r);
}

static mics_status run_verify(cli_call *call)
{
    verify_options print = {.shown_us = mics_clock_us()};
    printer *r = &print.report;
    const mics_verify_listener listener = {print_problem, show_progress, &print};
    mics_verification found = {0};
    MICS_TRY(cli_parse(call, &print));
    const char *path = call->arguments.items[0];
    cli_log_quiet(print.quiet);
    printer_open(r, NULL, '{', false);
    printer_open(r, "items", '[', false);
    const mics_status status = mics_verify(call->memory, path, &listener, print_item, &found);
    while (r->depth > 1) // an item that a failure cut short
        printer_close(r);
    PRINTER_ROW(r, cell_int("checkpoints", found.checkpoints),
                cell_int("good_checkpoints", found.good), cell_int("bytes", found.bytes),
                cell_flag("good", status == MICS_OK && found.problems == 0));
    printer_close(r);
    MICS_TRY(status);
    if (found.checkpoints == 0)
        mics_log(MICS_LOG_INFO, "%s: holds no checkpoint; its other files are what was checked",
                 path);
    if (found.problems == 0)
        return MICS_OK;
    call->running = true; // status 1: the usage was right
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: %lld problem%s; %d of %d checkpoints are good; restore what is named "
                     "above (--resume auto passes damaged checkpoints over)",
                     path, (long long)found.problems, text_plural(found.problems), (int)found.good,
                     (int)found.checkpoints);
}

const cli_verb cmd_verify = {
    .name = "verify",
    .summary = "every checksum and invariant of a checkpoint, or of all of a run's",
    .arguments = "PATH",
    .about = "Reads every byte of a checkpoint, or of all checkpoints and records of a run, and "
             "says what\n"
             "is wrong where, one line each. PATH is a step's folder, or a run's.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = 1,
    .notes =
        "Checked are manifests, tokenizer and config, headers, checksums of all data, that every "
        "unit\n"
        "is there once, that numbers are finite and no larger than training makes them, what\n"
        "`latest` names, and metrics.jsonl.\n"
        "Exit status: 0 all is good, 1 something is not, 2 PATH is neither a step's folder nor a "
        "run's.",
    .run = run_verify,
};
