// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics watch: what `mics train` shows, from beside. Each look opens the files anew and reads the end
// of metrics.jsonl, so it works on a disk that machines share, and however long the run is.
#include "cli.h"
#include "io/report/page.h"
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

enum { TAIL_BYTES = 1 << 20, LOOK_MS = 1000, CTRL_C = 3 };

typedef struct watch {
    bool once;
    mics_progress *progress;
    double validated;     // loss that was shown last
    double slowest;       // rank that was named last; NaN: none is
    int64_t shown, steps; // the newest step that was shown; of the run
} watch;

#define AT(member) offsetof(watch, member)
static const cli_option flags[] = {
    {"once", CLI_FLAG, NULL, "show the newest step, and end", AT(once), 0, 0},
};

static double newest(const history *of, const char *name)
{
    const history_figure *figure = history_find(of, name);
    return figure != NULL ? figure->newest : NAN;
}

static void show(watch *self, const report_run *run)
{
    const history *of = run->history;
    const double validation = newest(of, "validation_loss");
    const double accuracy = newest(of, "rewards/accuracies");
    const mics_metrics metrics = {.step = of->last,
                                  .steps = self->steps,
                                  .loss = newest(of, "loss"),
                                  .lr = newest(of, "lr"),
                                  .grad_norm = newest(of, "grad_norm"),
                                  .tokens_per_s = newest(of, "tokens_per_s"),
                                  .step_ms = newest(of, "step_ms"),
                                  .preference = {!isnan(accuracy), .accuracies = accuracy}};
    if (of->last > 0 && of->last != self->shown)
        mics_progress_step(self->progress, &metrics);
    const double rank = newest(of, "slowest_rank"), waits_ms = newest(of, "slowest_wait_ms");
    const double warn = report_number(run->resolved, "run.straggler_warn");
    const bool waits = warn > 0 && waits_ms > warn * metrics.step_ms;
    if (waits && rank != self->slowest)
        mics_progress_note(self->progress, "the others wait %.0f ms a step for rank %.0f", waits_ms,
                           rank);
    self->slowest = waits ? rank : NAN;
    if (!isnan(validation) && validation != self->validated)
        mics_progress_note(self->progress, "validation loss %.4f", validation);
    self->validated = isnan(validation) ? self->validated : validation;
    self->shown = of->last;
}

// Waits, unless a key is pressed that ends it. Of a terminal single keys are read.
static bool waits_on(bool keys)
{
    char key = 0;
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&input, keys, LOOK_MS) > 0 && read(STDIN_FILENO, &key, 1) < 1)
        return false;
    return key != 'q' && key != CTRL_C;
}

static mics_status look(cli_call *call, watch *self, bool *ended_out)
{
    report_run run = {0};
    MICS_TRY(report_run_open(call->memory, call->arguments.items[0], 1, TAIL_BYTES, &run));
    const double steps = report_number(run.resolved, "run.steps");
    self->steps = isfinite(steps) ? (int64_t)steps : run.history->last;
    *ended_out = run.history->stopped || run.history->last >= self->steps;
    show(self, &run);
    report_run_close(&run);
    return MICS_OK;
}

static mics_status run_watch(cli_call *call)
{
    watch self = {.validated = NAN, .slowest = NAN};
    struct termios before, single;
    bool ended = false;
    MICS_TRY(cli_parse(call, &self));
    MICS_TRY(mics_progress_open(call->memory, stdout, MICS_PROGRESS_AUTO, 0, &self.progress));
    mics_status status = look(call, &self, &ended);
    const bool keys = isatty(STDOUT_FILENO) != 0 && tcgetattr(STDIN_FILENO, &before) == 0;
    if (keys) {
        single = before;
        single.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &single);
    }
    call->running = status == MICS_OK;
    while (status == MICS_OK && !self.once && !ended && waits_on(keys))
        status = look(call, &self, &ended);
    if (keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &before);
    if (self.shown < 1 && status == MICS_OK)
        mics_progress_note(self.progress, "no step is done yet");
    mics_progress_close(self.progress);
    return status;
}

const cli_verb cmd_watch = {
    .name = "watch",
    .summary = "the newest steps of a run, from beside, while it trains",
    .arguments = "RUN",
    .about =
        "Shows the steps of the run whose folder is RUN as mics train does, until the run has "
        "done its\n"
        "last one. q or Ctrl-C ends it. Elsewhere than on a terminal it prints a line every five "
        "seconds.",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = 1,
    .run = run_watch,
};
