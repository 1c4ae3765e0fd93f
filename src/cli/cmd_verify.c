// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics verify: every checksum and invariant of a checkpoint, or of all of a run's.
#include "base/clock.h"
#include "base/size.h"
#include "base/text.h"
#include "cli.h"
#include "mics/run.h"
#include <stdio.h>

static const char about[] =
    "Reads every byte of a checkpoint, or of all checkpoints and records of a run, and says what\n"
    "is wrong where, one line each. PATH is a step's folder, or a run's.";
static const char notes[] =
    "Checked are manifests, tokenizer and config, headers, checksums of all data, that every unit\n"
    "is there once, that numbers are finite, what `latest` names, and metrics.jsonl.\n"
    "Exit status: 0 all is good, 1 something is not, 2 PATH is neither a step's folder nor a "
    "run's.";

static const double PROGRESS_EVERY_US = 5e6;

typedef struct verify_print {
    bool json, quiet;
    double shown_us; // when progress was shown last
    int64_t items;
    int64_t lines; // of problems, in JSON
} verify_print;

static mics_status parse(cli_call *call, verify_print *print)
{
    const cli_option table[] = {
        {"json", CLI_FLAG, NULL, "print one JSON object", &print->json, 0, 0},
        {"quiet", CLI_FLAG, NULL, "print nothing but what is wrong, and show no progress",
         &print->quiet, 0, 0},
    };
    const cli_spec spec = {
        .verb = "verify",
        .arguments = "PATH",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    return cli_parse(call, &spec);
}

// In JSON the problems of an item come before it, so they open the object that it ends.
static void begin_item(verify_print *print)
{
    if (print->lines == 0)
        printf("%s{\"problems\": [", print->items > 0 ? ", " : "");
}

static void print_problem(void *ctx, const char *line)
{
    verify_print *print = ctx;
    if (!print->json) {
        printf("%s\n", line);
        return;
    }
    begin_item(print);
    printf("%s", print->lines++ > 0 ? ", " : "");
    mics_text_write_quoted(stdout, line);
}

static void show_progress(void *ctx, const char *path, int64_t done, int64_t bytes)
{
    verify_print *print = ctx;
    const double now_us = mics_clock_us();
    char read[32], all[32];
    if (now_us - print->shown_us < PROGRESS_EVERY_US)
        return;
    print->shown_us = now_us;
    mics_log(MICS_LOG_INFO, "verifying %s: %s of %s", path,
             mics_size_text((double)done, read, sizeof read),
             mics_size_text((double)bytes, all, sizeof all));
}

static void print_item_json(verify_print *print, const mics_verified *what)
{
    begin_item(print);
    printf("], \"path\": ");
    mics_text_write_quoted(stdout, what->path);
    if (what->step >= 0)
        printf(", \"step\": %lld", (long long)what->step);
    printf(", \"files\": %d, \"bytes\": %lld, \"good\": %s}", (int)what->files,
           (long long)what->bytes, what->problems == 0 ? "true" : "false");
    print->items++;
    print->lines = 0;
}

static void print_item(void *ctx, const mics_verified *what)
{
    verify_print *print = ctx;
    char size[32];
    if (print->json) {
        print_item_json(print, what);
        return;
    }
    if (print->quiet && what->problems == 0)
        return;
    printf("%s: ", what->path);
    if (what->problems > 0)
        printf("%lld problem%s\n", (long long)what->problems, what->problems == 1 ? "" : "s");
    else if (what->step >= 0)
        printf("good: step %lld, %d files, %s\n", (long long)what->step, (int)what->files,
               mics_size_text((double)what->bytes, size, sizeof size));
    else if (what->lines > 0)
        printf("good: %lld lines\n", (long long)what->lines);
    else
        printf("good\n");
}

static mics_status verify(cli_call *call, verify_print *print)
{
    const char *path = call->arguments.items[0];
    const bool json = print->json;
    const mics_verify_listener listener = {print_problem, show_progress, print};
    mics_verification found = {0};
    if (json)
        printf("{\"items\": [");
    const mics_status status = mics_verify(call->memory, path, &listener, print_item, &found);
    if (json)
        printf("], \"checkpoints\": %d, \"good_checkpoints\": %d, \"bytes\": %lld, \"good\": %s}\n",
               (int)found.checkpoints, (int)found.good, (long long)found.bytes,
               status == MICS_OK && found.problems == 0 ? "true" : "false");
    MICS_TRY(status);
    if (found.problems == 0)
        return MICS_OK;
    call->running = true; // status 1: the usage was right
    return mics_fail(MICS_ERR_FORMAT,
                     "%s: %lld problem%s; %d of %d checkpoints are good; restore what is named "
                     "above (--resume auto passes damaged checkpoints over)",
                     path, (long long)found.problems, found.problems == 1 ? "" : "s",
                     (int)found.good, (int)found.checkpoints);
}

mics_status cmd_verify(cli_call *call)
{
    verify_print print = {.shown_us = mics_clock_us()};
    MICS_TRY(parse(call, &print));
    if (call->helped)
        return MICS_OK;
    cli_log_quiet(print.quiet);
    return verify(call, &print);
}
