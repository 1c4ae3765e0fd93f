// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The progress display: one line that is written over on a terminal, plain lines elsewhere.
//
// The display never fails a run: text that cannot be printed is lost.
#include "base/clock.h"
#include "base/text.h"
#include "mics/report.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PLAIN_EVERY_US 5e6 // between plain lines when log_every is 0
#define LIVE_EVERY_US 1e5  // between two drawings of the live line
#define WORK_BEGINS_US 5e5 // shorter work shows nothing on a terminal
#define WORK_PART 0.1      // of the time that work took so far, between plain lines of it

enum { LINE_BYTES = 512, BAR_CELLS = 20, BAR_LEAST = 4, DEFAULT_COLUMNS = 80, MAX_COLUMNS = 400 };

struct mics_progress {
    mics_memory *memory;
    FILE *stream;
    mics_progress_mode mode;
    int64_t log_every;
    bool colour;
    bool started;
    bool open; // the terminal's cursor stands behind a live line
    double shown_us;
    // Time left is judged by the steps after the first, which is slower than the others.
    int64_t first_step;
    double first_us;
    // Of other work than steps.
    const char *work; // NULL: none yet
    double work_begin_us, work_shown_us;
    char line[LINE_BYTES];
};

// ---- texts ----

static const char *duration_text(double seconds, char *text, size_t capacity)
{
    if (!(seconds >= 0.0) || seconds > 1e9)
        snprintf(text, capacity, "?");
    else if (seconds < 60.0)
        mics_text_format(text, capacity, "%.0fs", seconds);
    else if (seconds < 3600.0)
        snprintf(text, capacity, "%dm%02ds", (int)seconds / 60, (int)seconds % 60);
    else
        snprintf(text, capacity, "%dh%02dm", (int)(seconds / 3600.0), (int)seconds / 60 % 60);
    return text;
}

// "812", "15.3k", "2.41M": tokens a second.
static const char *rate_text(double rate, char *text, size_t capacity)
{
    if (!(rate < 1e6))
        mics_text_format(text, capacity, "%.2fM", rate / 1e6);
    else if (rate < 1e4)
        mics_text_format(text, capacity, "%.0f", rate);
    else
        mics_text_format(text, capacity, "%.1fk", rate / 1e3);
    return text;
}

static double seconds_left(const mics_progress *progress, const mics_metrics *metrics)
{
    double left = (double)(metrics->steps - metrics->step);
    int64_t done = metrics->step - progress->first_step;
    if (done > 0)
        return left * (mics_clock_us() - progress->first_us) / 1e6 / (double)done;
    return left * metrics->step_ms / 1e3;
}

// How much of the line the numbers may take; a narrow terminal shows them all, with fewer digits.
typedef enum numbers_digits { MANY, FEWER, FEWEST } numbers_digits;

static void numbers_text(const mics_progress *progress, const mics_metrics *metrics,
                         numbers_digits digits, char *text, size_t capacity)
{
    char rate[32], left[32], accuracy[32] = "";
    if (metrics->preference.any)
        mics_text_format(accuracy, sizeof accuracy, " acc %.*f%s", digits == FEWEST ? 2 : 3,
                         metrics->preference.accuracies, digits == MANY ? " " : "");
    rate_text(metrics->tokens_per_s, rate, sizeof rate);
    duration_text(seconds_left(progress, metrics), left, sizeof left);
    if (digits == MANY)
        mics_text_format(
            text, capacity, "loss %.4f %s lr %.2e  norm %.3f  %s tok/s  %.0f ms/step  %s left",
            metrics->loss, accuracy, metrics->lr, metrics->grad_norm, rate, metrics->step_ms, left);
    else if (digits == FEWER)
        mics_text_format(
            text, capacity, "loss %.4f%s lr %.1e norm %.3f %s tok/s %.0f ms/step %s left",
            metrics->loss, accuracy, metrics->lr, metrics->grad_norm, rate, metrics->step_ms, left);
    else
        mics_text_format(
            text, capacity, "loss %.4g%s lr %.0e norm %.3g %s tok/s %.0f ms/step %s left",
            metrics->loss, accuracy, metrics->lr, metrics->grad_norm, rate, metrics->step_ms, left);
}

// ---- lines ----

static int terminal_columns(const mics_progress *progress)
{
    struct winsize size = {0};
    if (ioctl(fileno(progress->stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        return size.ws_col < MAX_COLUMNS ? size.ws_col : MAX_COLUMNS;
    return DEFAULT_COLUMNS;
}

// A bar of the columns that are left: 20 cells, fewer, or none. Returns its length.
static int bar_text(double share, int columns, char text[BAR_CELLS + 4])
{
    int cells = columns - 3 < BAR_CELLS ? columns - 3 : BAR_CELLS; // brackets and a space
    text[0] = '\0';
    if (cells < BAR_LEAST)
        return 0;
    text[0] = '[';
    for (int i = 0; i < cells; i++)
        text[i + 1] = i < (int)(share * cells) ? '#' : '.';
    memcpy(text + cells + 1, "] ", 3);
    return cells + 2;
}

// Returns how much of the line is the bar. What people watch comes before the bar: it is the bar,
// and then digits, that a narrow terminal loses.
static int compose_live(mics_progress *progress, const mics_metrics *metrics)
{
    char bar[BAR_CELLS + 4], steps[48], numbers[LINE_BYTES / 2];
    // A line as wide as the terminal would wrap, and could not be written over.
    const int columns = terminal_columns(progress) - 1;
    int length = 0;
    snprintf(steps, sizeof steps, "%" PRId64 "/%" PRId64, metrics->step, metrics->steps);
    for (int digits = MANY; digits <= FEWEST; digits++) {
        numbers_text(progress, metrics, (numbers_digits)digits, numbers, sizeof numbers);
        length = (int)(strlen(steps) + strlen(numbers)) + (digits == MANY ? 2 : 1);
        if (length <= columns)
            break;
    }
    const double steps_or_one = (double)(metrics->steps > 0 ? metrics->steps : 1);
    int bar_length = bar_text((double)metrics->step / steps_or_one, columns - length, bar);
    snprintf(progress->line, sizeof progress->line, "%s%s %s%s", bar, steps,
             length == (int)(strlen(steps) + strlen(numbers)) + 2 ? " " : "", numbers);
    if ((int)strlen(progress->line) > columns)
        progress->line[columns] = '\0';
    return bar_length;
}

static void draw_live(mics_progress *progress, const mics_metrics *metrics)
{
    int bar = compose_live(progress, metrics);
    // Return, the line, erase what is left of the one before.
    if (progress->colour && bar > 0)
        fprintf(progress->stream, "\r\033[36m%.*s\033[0m%s\033[K", bar, progress->line,
                progress->line + bar);
    else
        fprintf(progress->stream, "\r%s\033[K", progress->line);
    progress->open = true;
}

static void print_plain(mics_progress *progress, const mics_metrics *metrics)
{
    char numbers[LINE_BYTES / 2];
    numbers_text(progress, metrics, MANY, numbers, sizeof numbers);
    fprintf(progress->stream, "step %" PRId64 "/%" PRId64 "  %s\n", metrics->step, metrics->steps,
            numbers);
}

// ---- the display ----

static mics_progress_mode choose_mode(FILE *stream)
{
    const char *terminal = getenv("TERM");
    if (!isatty(fileno(stream)) || terminal == NULL || strcmp(terminal, "dumb") == 0)
        return MICS_PROGRESS_PLAIN;
    return MICS_PROGRESS_LIVE;
}

mics_status mics_progress_open(mics_memory *memory, FILE *stream, mics_progress_mode mode,
                               int64_t log_every, mics_progress **progress_out)
{
    const char *no_colour = getenv("NO_COLOR");
    mics_progress *progress = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &progress));
    progress->memory = memory;
    progress->stream = stream != NULL ? stream : stdout;
    progress->mode = mode == MICS_PROGRESS_AUTO ? choose_mode(progress->stream) : mode;
    progress->log_every = log_every;
    progress->colour =
        (no_colour == NULL || *no_colour == '\0') && isatty(fileno(progress->stream));
    *progress_out = progress;
    return MICS_OK;
}

void mics_progress_break(mics_progress *progress)
{
    if (progress == NULL || !progress->open)
        return;
    fputc('\n', progress->stream);
    fflush(progress->stream);
    progress->open = false;
}

void mics_progress_close(mics_progress *progress)
{
    if (progress == NULL)
        return;
    mics_progress_break(progress);
    mics_free(progress->memory, progress);
}

static bool is_due(const mics_progress *progress, const mics_metrics *metrics)
{
    double since_us = mics_clock_us() - progress->shown_us;
    if (!progress->started || metrics->step >= metrics->steps)
        return true;
    if (progress->mode == MICS_PROGRESS_LIVE)
        return since_us >= LIVE_EVERY_US;
    if (progress->log_every > 0)
        return metrics->step % progress->log_every == 0;
    return since_us >= PLAIN_EVERY_US;
}

void mics_progress_step(mics_progress *progress, const mics_metrics *metrics)
{
    if (progress == NULL)
        return;
    const bool due = is_due(progress, metrics);
    if (!progress->started) {
        progress->started = true;
        progress->first_step = metrics->step;
        progress->first_us = mics_clock_us();
    }
    if (!due)
        return;
    if (progress->mode == MICS_PROGRESS_LIVE)
        draw_live(progress, metrics);
    else
        print_plain(progress, metrics);
    fflush(progress->stream);
    progress->shown_us = mics_clock_us();
}

// ---- other work ----

static void show_work(mics_progress *progress, double share, double gone_us)
{
    char left[32], bar[BAR_CELLS + 4], text[160];
    const double left_us = share > 0 ? gone_us * (1 - share) / share : INFINITY;
    duration_text(left_us / 1e6, left, sizeof left);
    // Truncated: it is not all done before it is.
    snprintf(text, sizeof text, "%s: %d %%, %s left", progress->work, (int)(share * 100), left);
    if (progress->mode == MICS_PROGRESS_PLAIN) {
        fprintf(progress->stream, "%s\n", text);
        return;
    }
    const int columns = terminal_columns(progress) - 1;
    (void)bar_text(share, columns - (int)strlen(text), bar);
    snprintf(progress->line, sizeof progress->line, "%s%s", bar, text);
    progress->line[columns] = '\0';
    fprintf(progress->stream, "\r%s\033[K", progress->line);
    progress->open = true;
}

void mics_progress_work(mics_progress *progress, const char *what, int64_t done, int64_t total)
{
    const double now_us = mics_clock_us();
    if (progress == NULL)
        return;
    if (progress->work == NULL || strcmp(progress->work, what) != 0)
        progress->work_begin_us = progress->work_shown_us = now_us;
    progress->work = what;
    const double gone_us = now_us - progress->work_begin_us;
    const double since_us = now_us - progress->work_shown_us;
    const bool live = progress->mode == MICS_PROGRESS_LIVE;
    if (done >= total) { // what follows says what came of it; a step's line stays
        if (progress->open && progress->work_shown_us > progress->work_begin_us) {
            fputs("\r\033[K", progress->stream);
            progress->open = false;
        }
        progress->work = NULL;
    } else if (live ? gone_us > WORK_BEGINS_US && since_us > LIVE_EVERY_US
                    : since_us > fmax(PLAIN_EVERY_US, WORK_PART * gone_us)) {
        show_work(progress, (double)done / (double)total, gone_us);
        progress->work_shown_us = now_us;
    }
    fflush(progress->stream);
}

void mics_progress_note(mics_progress *progress, const char *format, ...)
{
    va_list args;
    if (progress == NULL)
        return;
    va_start(args, format);
    if (progress->open)
        fputs("\r\033[K", progress->stream);
    vfprintf(progress->stream, format, args);
    va_end(args);
    fputc('\n', progress->stream);
    if (progress->open)
        fputs(progress->line, progress->stream);
    fflush(progress->stream);
}
