// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics verify: every checksum and invariant of a checkpoint, or of all of a run's.
#include "base/clock.h"
#include "cli.h"
#include "mics/run.h"
#include "printer.h"

static const double PROGRESS_EVERY_US = 5e6;

typedef struct verify_options {
    cli_report report;
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
static void begin_item(cli_report *r)
{
    if (r->depth > DEPTH_OF_ITEMS)
        return;
    cli_open(r, NULL, '{', false);
    cli_open(r, "problems", '[', false);
}

static void print_problem(void *ctx, const char *line)
{
    cli_report *r = &((verify_options *)ctx)->report;
    cli_print(r, "%s\n", line);
    begin_item(r);
    CLI_ROW(r, cli_words(NULL, line));
}

static void show_progress(void *ctx, const char *path, int64_t done, int64_t bytes)
{
    verify_options *print = ctx;
    const double now_us = mics_clock_us();
    if (now_us - print->shown_us < PROGRESS_EVERY_US)
        return;
    print->shown_us = now_us;
    mics_log(MICS_LOG_INFO, "verifying %s: %s of %s", path, cli_size((double)done).text,
             cli_size((double)bytes).text);
}

static void print_item_line(const cli_report *r, const mics_verified *what)
{
    cli_print(r, "%s: ", what->path);
    if (what->problems > 0)
        cli_print(r, "%lld problem%s\n", (long long)what->problems, cli_plural(what->problems));
    else if (what->step >= 0)
        cli_print(r, "good: step %lld, %d files, %s\n", (long long)what->step, (int)what->files,
                  cli_size((double)what->bytes).text);
    else if (what->lines > 0)
        cli_print(r, "good: %lld lines\n", (long long)what->lines);
    else
        cli_print(r, "good\n");
}

static void print_item(void *ctx, const mics_verified *what)
{
    verify_options *print = ctx;
    cli_report *r = &print->report;
    if (!print->quiet || what->problems > 0)
        print_item_line(r, what);
    begin_item(r);
    cli_close(r);
    CLI_ROW(r, cli_words("path", what->path));
    if (what->step >= 0)
        CLI_ROW(r, cli_int("step", what->step));
    CLI_ROW(r, cli_int("files", what->files), cli_int("bytes", what->bytes),
            cli_flag("good", what->problems == 0));
    cli_close(r);
}

static mics_status run_verify(cli_call *call)
{
    verify_options print = {.shown_us = mics_clock_us()};
    cli_report *r = &print.report;
    const mics_verify_listener listener = {print_problem, show_progress, &print};
    mics_verification found = {0};
    MICS_TRY(cli_parse(call, &print));
    const char *path = call->arguments.items[0];
    cli_log_quiet(print.quiet);
    cli_open(r, NULL, '{', false);
    cli_open(r, "items", '[', false);
    const mics_status status = mics_verify(call->memory, path, &listener, print_item, &found);
    while (r->depth > 1) // an item that a failure cut short
        cli_close(r);
    CLI_ROW(r, cli_int("checkpoints", found.checkpoints), cli_int("good_checkpoints", found.good),
            cli_int("bytes", found.bytes),
            cli_flag("good", status == MICS_OK && found.problems == 0));
    cli_close(r);
    MICS_TRY(status);
    if (found.problems == 0)
        return MICS_OK;
    call->running = true; // status 1: the usage was right
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: %lld problem%s; %d of %d checkpoints are good; restore what is named "
                     "above (--resume auto passes damaged checkpoints over)",
                     path, (long long)found.problems, cli_plural(found.problems), (int)found.good,
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
        "is there once, that numbers are finite, what `latest` names, and metrics.jsonl.\n"
        "Exit status: 0 all is good, 1 something is not, 2 PATH is neither a step's folder nor a "
        "run's.",
    .run = run_verify,
};
