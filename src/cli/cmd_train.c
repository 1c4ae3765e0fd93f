// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics train: reads the command line and the run file, opens the world, and runs its ranks.
#include "args.h"
#include "cli.h"
#include "cores.h"
#include "gpu.h"
#include "job.h"
#include "launch.h"
#include "signals.h"
#include "trainer.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const char about[] =
    "Trains the model that a run file describes. Under mpirun or srun the ranks are MPI's,\n"
    "otherwise they are threads of this process. Writes metrics and checkpoints into the run's\n"
    "output folder (run.out).";
static const char notes[] =
    "SIGINT or SIGTERM: finishes the step, saves it, and exits with 1; a second one ends at once.\n"
    "Validation without data.validation holds out the last twentieth of the training text.";

// How long the ranks wait for each other while the run file, which says it, could not be read.
static const double SETUP_TIMEOUT_S = 60;

typedef struct train_options {
    int64_t ranks, nodes, steps;
    const char *resume, *out;
    cli_list sets, arguments;
} train_options;

static cli_parsed parse(mics_memory *memory, int argc, char **argv, train_options *options)
{
    const cli_option table[] = {
        {"ranks", CLI_INT, "N", "ranks, as threads of this process; default 1", &options->ranks, 1,
         CLI_RANKS_MAX},
        {"nodes", CLI_INT, "M", "treat the ranks as M nodes; default: what MPI finds, or 1",
         &options->nodes, 1, CLI_RANKS_MAX},
        {"steps", CLI_INT, "N", "end after step N, whatever the file says", &options->steps, 1, 0},
        {"resume", CLI_TEXT, "auto|none|DIR",
         "go on from the newest checkpoint of the output folder if there is one (auto, the "
         "default), from none, or from DIR",
         &options->resume, 0, 0},
        {"out", CLI_TEXT, "DIR", "output folder", &options->out, 0, 0},
        {"set", CLI_EACH, "a.b=v", "set one key of the run file; may be repeated", &options->sets,
         0, 0},
    };
    const cli_spec spec = {
        .verb = "train",
        .arguments = "RUN.json",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    return cli_parse(memory, &spec, argc, argv, &options->arguments);
}

// --steps and --out are sets too, after the user's own.
static mics_status load_run(mics_memory *memory, const train_options *options, mics_run **run_out)
{
    char steps[48], out[4096];
    const char **sets = NULL;
    int32_t count = 0;
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, (size_t)(options->sets.count + 2) * sizeof *sets,
                        &block));
    for (sets = block; count < options->sets.count; count++)
        sets[count] = options->sets.items[count];
    if (options->steps > 0) {
        snprintf(steps, sizeof steps, "run.steps=%lld", (long long)options->steps);
        sets[count++] = steps;
    }
    if (options->out != NULL) {
        // In quotes, lest a folder called 12 be taken as a number.
        bool plain = strpbrk(options->out, "\"\\") == NULL;
        snprintf(out, sizeof out, plain ? "run.out=\"%s\"" : "run.out=%s", options->out);
        sets[count++] = out;
    }
    mics_status status = mics_run_load(memory, options->arguments.items[0], sets, count, run_out);
    mics_free(memory, block);
    return status;
}

// ---- setup, alike in all processes ----

// What the run file says for another engine, and has no effect here, is named once.
static void say_hints(const mics_run *run)
{
    char names[512] = "";
    size_t used = 0;
    for (int32_t i = 0; i < mics_run_row_count(run); i++) {
        const mics_run_row row = mics_run_row_at(run, i);
        if (row.hint && used < sizeof names)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", row.key);
    }
    if (used > 0)
        mics_log(MICS_LOG_INFO, "without effect here (mics explain says why): %s%s", names,
                 used < sizeof names ? "" : "...");
}

static void say_kept(const cli_job *job)
{
    const char *kept = mics_run_kept_text(job->run);
    if (*kept != '\0')
        mics_log(MICS_LOG_INFO, "kept from %s, as the run file does not say it: %s",
                 job->checkpoint_path, kept);
}

static mics_status open_model(cli_job *job)
{
    size_t staging = cli_world_is_mpi(job->world) ? mics_comm_mpi_staging_bytes() : 0;
    MICS_TRY(cli_job_open_model(job, cli_world_ranks(job->world), cli_world_nodes(job->world),
                                cli_world_ranks_here(job->world), staging));
    job->room.shares = cli_world_shares(job->world);
    if (job->run->share_params && !job->room.shares && !job->room.accelerator.used &&
        cli_world_is_first(job->world) && cli_world_ranks(job->world) > cli_world_nodes(job->world))
        mics_log(MICS_LOG_INFO, "run.share_params: the processes of a node have no memory in "
                                "common here (or --nodes says otherwise than the launcher), so "
                                "gathers copy");
    return MICS_OK;
}

static mics_status open_schedule(cli_job *job)
{
    if (job->run->collectives == MICS_COLLECTIVES_LIBRARY && !cli_world_is_mpi(job->world))
        return mics_json_fail(job->run->json, "run.collectives", MICS_ERR_UNSUPPORTED,
                              "\"library\" is the MPI library's all-gather, and these ranks are "
                              "threads; use \"ring\" or \"two-stage\", or mpirun");
    if (job->room.accelerator.used && (job->run->collectives == MICS_COLLECTIVES_MEASURED ||
                                       job->run->collectives == MICS_COLLECTIVES_LIBRARY))
        return mics_json_fail(job->run->json, "run.collectives", MICS_ERR_UNSUPPORTED,
                              "\"measured\" and \"library\" are of the processor's collectives; on "
                              "cuda use \"auto\", \"two-stage\" or \"ring\"");
    MICS_TRY(cli_job_open_schedule(job));
    return cli_check_memory(job->memory, job->run, job->schedule, &job->room);
}

// Processes read their machines' memory and cores at other moments, or have other machines; the
// poorest decides, so that all choose the same sharding. Launchers bind ranks to cores, of their own or shared.
static mics_status share_room(cli_job *job)
{
    int32_t cores = 0;
    MICS_TRY(cli_cores_read(job->world, job->memory, &cores));
    if (job->run->threads == 0 && cores > 0)
        job->room.threads = cores;
    int64_t least[] = {-(int64_t)job->room.limit_bytes, -(int64_t)job->room.threads};
    MICS_TRY(cli_world_max(job->world, least, 2));
    job->room.limit_bytes = (size_t)-least[0];
    job->room.threads = (int32_t)-least[1];
    return MICS_OK;
}

static mics_status open_data(void *ctx)
{
    return cli_job_open_data(ctx);
}

static void print_finished(const cli_job *job)
{
    const char *out = job->run->out;
    printf("%s holds the finished run: step %lld of %lld is in %s\n"
           "to train further: --steps N with more steps; to train again, as with changed keys: "
           "another --out, or rm -r %s first\n",
           out, (long long)job->start_step, (long long)job->run->steps, job->checkpoint_path, out);
}

static mics_status run_world(cli_job *job, const train_options *options, mics_status loaded)
{
    const char *resume = options->resume != NULL ? options->resume : "auto";
    MICS_TRY(cli_world_agree(job->world, loaded));
    MICS_TRY(cli_world_agree(job->world, cli_job_find_checkpoint(job, resume)));
    MICS_TRY(cli_gpu_resolve_all(job->world, job->run));
    MICS_TRY(cli_world_agree(job->world, open_model(job)));
    MICS_TRY(share_room(job));
    MICS_TRY(cli_world_agree(job->world, open_schedule(job)));
    MICS_TRY(cli_world_first(job->world, open_data, job));
    if (job->finished) {
        if (cli_world_is_first(job->world))
            print_finished(job);
        return MICS_OK;
    }
    if (cli_world_is_first(job->world)) {
        say_hints(job->run);
        say_kept(job);
    }
    MICS_TRY(cli_collectives_settle(job));
    cli_signals_training(cli_world_is_mpi(job->world) ? cli_world_first_rank(job->world) : -1,
                         job->lock_file);
    return cli_world_run(job->world, cli_train_rank, job);
}

// `parsed` is false when the command line was wrong: then the world is opened only to say so once.
static mics_status train(mics_memory *memory, const train_options *options, bool parsed,
                         bool *running_out)
{
    cli_job job = {.memory = memory, .lock_file = -1};
    mics_status status = parsed ? load_run(memory, options, &job.run) : MICS_ERR_INVALID;
    cli_world_spec spec = {
        .ranks = (int32_t)options->ranks,
        .nodes = (int32_t)options->nodes,
        .timeout_s = job.run != NULL ? job.run->comm_timeout_s : SETUP_TIMEOUT_S,
    };
    mics_status opened = cli_world_open(memory, &spec, &job.world);
    if (opened == MICS_OK)
        status = run_world(&job, options, status);
    else
        status = opened;
    cli_log_release(status != MICS_OK, -1);
    *running_out = atomic_load(&job.running);
    cli_world_close(job.world);
    cli_job_close(&job);
    return status;
}

int cmd_train(int argc, char **argv)
{
    mics_memory *memory = NULL;
    train_options options = {0};
    bool running = false;
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    // Whoever reads our output may leave; training goes on.
    signal(SIGPIPE, SIG_IGN);
    // Until the world is open this process does not know whether it is the one that speaks.
    cli_log_hold(mics_comm_mpi_launched());
    cli_parsed parsed = parse(memory, argc, argv, &options);
    mics_status status = MICS_OK;
    if (parsed != CLI_PARSED_HELP)
        status = cli_signals_start();
    if (parsed != CLI_PARSED_HELP && status == MICS_OK)
        status = train(memory, &options, parsed == CLI_PARSED_RUN, &running);
    mics_free(memory, options.sets.items);
    mics_free(memory, options.arguments.items);
    mics_memory_close(memory);
    return cli_exit_status(status, running);
}
