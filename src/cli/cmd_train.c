// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics train: command line, signals, and what is printed of a job (mics/run.h).
#include "cli.h"
#include "run/settings.h"
#include "signals.h"
#include "train.h"
#include <signal.h>
#include <stdio.h>

typedef struct training {
    mics_job_spec job;
    bool json, quiet;
    mics_progress *progress; // of rank 0's process, while it trains; NULL: nothing is shown
    int64_t steps;           // of the run
} training;

#define AT(member) offsetof(training, member)
static const cli_option flags[] = {
    {"ranks", CLI_COUNT, "N", "ranks, as threads of this process; default 1", AT(job.ranks), 1,
     CLI_MAX_RANKS},
    {"nodes", CLI_COUNT, "M", "treat the ranks as M nodes; default: what MPI finds, or 1",
     AT(job.nodes), 1, CLI_MAX_RANKS},
    {"steps", CLI_KEY_INT, "N", "end after step N, whatever the file says", 0, 1, 0},
    {"resume", CLI_TEXT, "auto|none|DIR",
     "resume from the newest good checkpoint of the output folder, if there is one (auto, the "
     "default), from none, or from DIR",
     AT(job.resume), 0, 0},
    {"out", CLI_KEY_TEXT, "DIR", "output folder", 0, 0, 0},
    CLI_SOURCE,
    CLI_ADAPTER,
    CLI_SETS,
    {"json", CLI_FLAG, NULL, "print one JSON object at the end, and progress on standard error",
     AT(json), 0, 0},
    {"quiet", CLI_FLAG, NULL, "print nothing but warnings, errors and what --json does", AT(quiet),
     0, 0},
};

// ---- what is heard of the job ----

static void begin(void *ctx, const mics_job *job)
{
    training *self = ctx;
    const mics_job_facts facts = mics_job_facts_get(job);
    self->steps = mics_job_run(job)->steps;
    mics_progress_close(self->progress); // of the phase before
    self->progress = NULL;
    if (self->quiet)
        return;
    if (!self->json)
        cli_print_beginning(job);
    // Launchers give ranks terminals of their own, whatever becomes of their output.
    FILE *stream = self->json ? stderr : stdout;
    if (mics_progress_open(self->job.memory, stream,
                           facts.mpi ? MICS_PROGRESS_PLAIN : MICS_PROGRESS_AUTO,
                           mics_job_run(job)->log_every, &self->progress) != MICS_OK)
        self->progress = NULL; // said; training does without
}

static void show_step(void *ctx, const mics_metrics *metrics)
{
    mics_progress_step(((training *)ctx)->progress, metrics);
}

static void show_validation(void *ctx, int64_t step, double loss)
{
    training *self = ctx;
    if (step == 0)
        mics_progress_note(self->progress, "validation loss %.4f before training", loss);
    else
        mics_progress_note(self->progress, "validation loss %.4f after step %lld", loss,
                           (long long)step);
}

static void show_saving(void *ctx, int64_t step)
{
    training *self = ctx;
    if (step == self->steps)
        mics_progress_note(self->progress, "saving step %lld", (long long)step);
}

static void show_checkpoint(void *ctx, int64_t step, const char *path)
{
    mics_progress_note(((training *)ctx)->progress, "checkpoint step %lld written to %s",
                       (long long)step, path);
}

static void show_note(void *ctx, const char *line)
{
    mics_progress_note(((training *)ctx)->progress, "%s", line);
}

static void show_sample(void *ctx, int64_t step, const char *text, size_t bytes)
{
    cli_print_sample_of_step(((training *)ctx)->progress, step, text, bytes);
}

static void show_work(void *ctx, const char *what, int64_t done, int64_t total)
{
    mics_progress_work(((training *)ctx)->progress, what, done, total);
}

// ---- the job ----

static void print_finished(const mics_job *job)
{
    const char *out = mics_job_run(job)->out;
    const mics_job_facts facts = mics_job_facts_get(job);
    printf("%s holds the finished run: step %lld of %lld is in %s\n"
           "to train further: --steps N with more steps; to train again, as with changed keys: "
           "another --out, or rm -r %s first\n",
           out, (long long)facts.start_step, (long long)mics_job_run(job)->steps, facts.checkpoint,
           out);
}

static const char *stopped_by(const mics_job *job)
{
    const char *by = cli_signals_asked();
    if (by == NULL)
        by = mics_job_standing_get(job).asked_by_run;
    return by != NULL ? by : "a signal to another rank";
}

// All ranks stopped, as they were asked to: nobody's error.
static void log_stopped(const training *self, const mics_job *job)
{
    const mics_job_facts facts = mics_job_facts_get(job);
    const mics_job_standing at = mics_job_standing_get(job);
    const bool saved = at.saved && at.saved_step == facts.step;
    mics_progress_break(self->progress);
    mics_log(MICS_LOG_INFO, "stopped by %s after step %lld, which is %s%s; --resume auto goes on%s",
             stopped_by(job), (long long)facts.step,
             saved ? "saved in " : "in node memory and not on disk",
             saved ? facts.checkpoints_dir : "", saved ? "" : " from it on the same nodes");
    if (self->json)
        cli_print_end_json(job, stopped_by(job));
}

static mics_status print_end(const training *self, const mics_job *job)
{
    if (self->json)
        cli_print_end_json(job, NULL);
    return self->json || self->quiet ? MICS_OK : cli_print_end(self->job.memory, job);
}

static void show_finished(const training *self, const mics_job *job)
{
    if (self->json)
        cli_print_end_json(job, NULL);
    else if (!self->quiet)
        print_finished(job);
}

// Of the process that speaks for all.
static mics_status show_end(training *self, const mics_job *job, bool first, mics_status status)
{
    cli_signals_done(job, cli_exit_status(status, true));
    if (status == MICS_ERR_INTERRUPTED && first)
        log_stopped(self, job);
    mics_progress_close(self->progress);
    self->progress = NULL;
    return status == MICS_OK && first ? print_end(self, job) : status;
}

static mics_status open_job(cli_call *call, training *self, mics_job **job_out)
{
    mics_job_spec *spec = &self->job;
    spec->memory = call->memory;
    spec->status = cli_parse(call, self);
    spec->file = spec->status == MICS_OK ? call->arguments.items[0] : NULL;
    spec->sets = call->sets.items;
    spec->set_count = call->sets.count;
    spec->callbacks = (mics_job_callbacks){self,        begin,           show_step, show_validation,
                                           show_saving, show_checkpoint, show_note, NULL,
                                           show_sample, show_work};
    cli_log_quiet(self->quiet);
    const mics_status status = mics_job_open(spec, job_out);
    call->running = status == MICS_OK;
    return status;
}

static mics_status run_train(cli_call *call)
{
    training self = {.quiet = false};
    mics_job *job = NULL;
    // Whoever reads our output may leave; training goes on.
    signal(SIGPIPE, SIG_IGN);
    cli_signals_resumable();
    // Until the world is open this process does not know whether it is the one that speaks.
    mics_log_hold(mics_job_is_launched());
    mics_status status = open_job(call, &self, &job);
    const bool first = status == MICS_OK && mics_job_facts_get(job).first_rank == 0;
    if (status == MICS_OK && mics_job_facts_get(job).finished) {
        cli_signals_done(job, cli_exit_status(status, true));
        if (first)
            show_finished(&self, job);
    } else if (status == MICS_OK) {
        cli_signals_serve(job);
        status = mics_job_train(job, 0);
        status = show_end(&self, job, first, status);
    }
    mics_progress_close(self.progress);
    const mics_status closed = mics_job_close(job);
    return status != MICS_OK ? status : closed;
}

const cli_verb cmd_train = {
    .name = "train",
    .summary = "trains a model",
    .arguments = "RUN.json|FOLDER",
    .about =
        "Trains the model that a run file (JSON, or YAML by its name) describes, or fine-tunes "
        "that of a\n"
        "folder with weights: mics train --model FOLDER --data FILE. Under mpirun or srun\n"
        "the ranks are MPI's, otherwise they are threads of this process. Writes metrics and\n"
        "checkpoints into the run's output folder (run.out).",
    CLI_OPTIONS(flags),
    .min_arguments = 1,
    .max_arguments = 1,
    .model_stands = true,
    .notes =
        "SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, a file OUT/stop, and run.max_hours: saves the "
        "step\n"
        "that was done last, and exits with 75; a second SIGINT or SIGTERM ends at once.\n"
        "Validation without data.validation holds out the last twentieth of the training text.",
    .run = run_train,
    .stopped = "no step was trained",
};
