// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench: measures links and computation where it runs, and merges them into a cluster file. What the file
// lacks of the other half is measured too, in short, as a file must have both.
#include "args.h"
#include "base/text.h"
#include "bench.h"
#include "bench_subject.h"
#include "cli.h"
#include "mics/log.h"
#include <string.h>
#include <time.h>

static const char comm_about[] =
    "Measures messages inside nodes and between them: latency, rate by size, what they take of a\n"
    "core, and how computation fares beside them. Under mpirun or srun the ranks are MPI's,\n"
    "otherwise --ranks threads of this process. Updates the links of a cluster file for mics plan.";
static const char compute_about[] =
    "Measures the ops of a model as training runs them, on all ranks at once: of a run file, of a\n"
    "model configuration, or of GPT-2. Updates the computation of a cluster file for mics plan.";

static const double DEFAULT_SECONDS = 20, TIMEOUT_S = 120;
// Of the time asked for, what is taken for the other half where the file lacks it.
static const double OTHER_SHARE = 0.25;

typedef enum half { LINKS, COMPUTE, HALVES } half;

typedef struct bench_options {
    half wanted;
    cli_list arguments, sets;
    const char *config, *out;
    int64_t ranks, nodes, threads, batch, sequence;
    double seconds;
    bool json;
} bench_options;

typedef struct bench_job {
    mics_memory *memory;
    const bench_options *options;
    run_world *world;
    bench_subject subject;
    bool there;           // the file, when it began
    mics_cluster cluster; // of the first process
    double seconds[HALVES];
    // Filled by rank 0.
    bench_place place;
    bench_links links;
    bench_compute compute;
} bench_job;

// ---- arguments ----

static cli_parsed parse_comm(mics_memory *memory, int argc, char **argv, bench_options *options)
{
    const cli_option table[] = {
        {"ranks", CLI_INT, "N", "ranks, as threads of this process", &options->ranks, 1,
         CLI_RANKS_MAX},
        {"nodes", CLI_INT, "M", "treat the ranks as M nodes; default: what MPI finds, or 1",
         &options->nodes, 1, CLI_RANKS_MAX},
        {"threads", CLI_INT, "N", "that compute in a rank; default: its share of the cores",
         &options->threads, 1, 4096},
        {"out", CLI_TEXT, "FILE", "the cluster file, made or updated; default cluster.json",
         &options->out, 0, 0},
        {"seconds", CLI_REAL, "S", "about how long; default 20", &options->seconds, 0, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "bench comm",
        .arguments = "",
        .about = comm_about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
    };
    return cli_parse(memory, &spec, argc, argv, &options->arguments);
}

static cli_parsed parse_compute(mics_memory *memory, int argc, char **argv, bench_options *options)
{
    const cli_option table[] = {
        {"config", CLI_TEXT, "FILE", "a Hugging Face config.json, in place of a run file",
         &options->config, 0, 0},
        {"batch", CLI_INT, "N", "sequences of a micro-step; default: the run's, or 1",
         &options->batch, 1, 1 << 20},
        {"sequence", CLI_INT, "N", "tokens of a sequence; default: the run's, or the model's most",
         &options->sequence, 1, 1 << 24},
        {"set", CLI_EACH, "a.b=v", "set one key of the run file; may be repeated", &options->sets,
         0, 0},
        {"ranks", CLI_INT, "N", "ranks, as threads of this process; default 1", &options->ranks, 1,
         CLI_RANKS_MAX},
        {"nodes", CLI_INT, "M", "treat the ranks as M nodes; default: what MPI finds, or 1",
         &options->nodes, 1, CLI_RANKS_MAX},
        {"threads", CLI_INT, "N", "of a rank; default: run.threads, or its share of the cores",
         &options->threads, 1, 4096},
        {"out", CLI_TEXT, "FILE", "the cluster file, made or updated; default cluster.json",
         &options->out, 0, 0},
        {"seconds", CLI_REAL, "S", "about how long; default 20", &options->seconds, 0, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "bench compute",
        .arguments = "[RUN.json]",
        .about = compute_about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .max_arguments = 1,
    };
    cli_parsed parsed = cli_parse(memory, &spec, argc, argv, &options->arguments);
    if (parsed != CLI_PARSED_RUN || options->config == NULL)
        return parsed;
    if (options->arguments.count == 0 && options->sets.count == 0)
        return parsed;
    mics_fail(MICS_ERR_INVALID, "mics bench compute: --config stands in place of RUN.json and "
                                "--set; leave one out");
    return CLI_PARSED_WRONG;
}

static cli_parsed parse(mics_memory *memory, int argc, char **argv, bench_options *options)
{
    static const char *const names[HALVES] = {"comm", "compute"};
    const char *name = argc > 0 ? argv[0] : "";
    if (argc > 0 && (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)) {
        printf(
            "usage: mics bench comm [flags]\n       mics bench compute [RUN.json] [flags]\n\n%s\n\n"
            "%s\n\nmics bench comm --help and mics bench compute --help list the flags.\n",
            comm_about, compute_about);
        return CLI_PARSED_HELP;
    }
    if (argc > 0 && strcmp(name, names[LINKS]) == 0)
        return parse_comm(memory, argc - 1, argv + 1, options);
    options->wanted = COMPUTE;
    if (argc > 0 && strcmp(name, names[COMPUTE]) == 0)
        return parse_compute(memory, argc - 1, argv + 1, options);
    const char *near = argc > 0 ? cli_nearest(name, names, HALVES) : NULL;
    if (near != NULL)
        mics_fail(MICS_ERR_INVALID, "mics bench: measures no \"%.40s\"; did you mean \"%s\"?", name,
                  near);
    else
        mics_fail(MICS_ERR_INVALID,
                  "mics bench: say what to measure: mics bench comm, or mics bench compute");
    return CLI_PARSED_WRONG;
}

// ---- before measuring ----

static mics_status open_subject(bench_job *job)
{
    const bench_options *options = job->options;
    const bench_subject_spec spec = {
        .run = options->arguments.count > 0 ? options->arguments.items[0] : NULL,
        .sets = options->sets.items,
        .set_count = options->sets.count,
        .config = options->config,
        .batch = options->batch,
        .sequence = options->sequence,
        .threads = (int32_t)options->threads,
        .ranks = job->world->ranks,
        .nodes = job->world->nodes,
        .ranks_here = job->world->ranks_here,
        .seconds = job->options->seconds,
    };
    return bench_subject_open(job->memory, &spec, &job->subject);
}

static mics_status check_options(const bench_job *job)
{
    if (job->options->seconds == 0)
        return mics_fail(MICS_ERR_INVALID, "mics bench: --seconds 0 measures nothing");
    if (job->options->wanted != LINKS || job->world->ranks > 1)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "mics bench comm: one rank has no links; give --ranks 2 or more, or mpirun");
}

// The first process knows the file.
static mics_status open_file(bench_job *job)
{
    const bench_place place = {.per_node = job->world->ranks / job->world->nodes};
    if (job->world->first != 0)
        return MICS_OK;
    MICS_TRY(bench_file_read(job->memory, job->options->out, &job->there, &job->cluster));
    if (!job->there) {
        bench_file_begin(&place, job->options->out, &job->cluster);
        return MICS_OK;
    }
    return bench_file_check(job->options->out, &job->cluster, place.per_node);
}

// Which halves are measured, and for how long: what is asked for, and what the file lacks.
static mics_status share_out(bench_job *job)
{
    const half other = job->options->wanted == LINKS ? COMPUTE : LINKS;
    int64_t lacks = 0;
    if (job->world->first == 0)
        lacks = !job->there;
    MICS_TRY(run_world_max(job->world, &lacks, 1));
    const double seconds = job->options->seconds * (lacks ? 1 - OTHER_SHARE : 1);
    job->seconds[job->options->wanted] = seconds;
    job->seconds[other] = lacks && (other == COMPUTE || job->world->ranks > 1)
                              ? job->options->seconds * OTHER_SHARE
                              : 0;
    return MICS_OK;
}

// ---- measuring ----

static mics_status measure(bench *b, const bench_job *job, bench_links *links,
                           bench_compute *compute)
{
    bench_subject subject = job->subject;
    subject.batch.threads = b->place.threads;
    if (job->seconds[COMPUTE] > 0)
        MICS_TRY(bench_compute_measure(b, &subject, job->seconds[COMPUTE], compute));
    if (job->seconds[LINKS] > 0)
        MICS_TRY(bench_links_measure(b, job->seconds[LINKS], links));
    return MICS_OK;
}

static mics_status bench_rank(void *ctx, run_rank *rank)
{
    bench_job *job = ctx;
    bench b = {.rank = NULL};
    bench_links links = {.took_s = 0};
    bench_compute compute = {.took_s = 0};
    mics_status status = bench_open(&b, rank, job->subject.batch.threads);
    if (status == MICS_OK)
        status = measure(&b, job, &links, &compute);
    if (status == MICS_OK && rank->comm->rank == 0) {
        job->place = b.place;
        job->links = links;
        job->compute = compute;
    }
    bench_close(&b);
    return status;
}

// ---- afterwards ----

static void take_in(bench_job *job)
{
    char words[96], date[16] = "";
    const bench_place *place = &job->place;
    const time_t now = time(NULL);
    struct tm parts;
    if (gmtime_r(&now, &parts) != NULL)
        strftime(date, sizeof date, "%Y-%m-%d", &parts);
    for (int i = 0; i < HALVES; i++) {
        if (job->seconds[i] <= 0)
            continue;
        snprintf(words, sizeof words, "mics bench, %s, %d x %d ranks by %s, %.0f s", date,
                 (int)place->nodes, (int)place->per_node, place->mpi ? "MPI" : "threads",
                 i == LINKS ? job->links.took_s : job->compute.took_s);
        bench_file_note(&job->cluster, i == LINKS ? "links" : "computation", words);
    }
    if (job->seconds[COMPUTE] > 0)
        bench_file_take_compute(place, &job->compute, &job->cluster);
    if (job->seconds[LINKS] > 0)
        bench_file_take_links(place, &job->links, &job->cluster);
}

static mics_status print_json(const bench_job *job)
{
    char *text = NULL;
    MICS_TRY(mics_cluster_text(job->memory, &job->cluster, &text));
    printf("{\"file\": ");
    mics_text_write_quoted(stdout, job->options->out);
    printf(", \"ranks\": %d, \"nodes\": %d, \"threads\": %d, \"transport\": \"%s\", "
           "\"shared_cores\": %s, \"comm\": ",
           (int)job->place.ranks, (int)job->place.nodes, (int)job->place.threads,
           job->place.mpi ? "mpi" : "threads", job->place.shared ? "true" : "false");
    if (job->seconds[LINKS] > 0)
        bench_json_links(&job->place, &job->links, &job->cluster, stdout);
    else
        printf("null");
    printf(", \"compute\": ");
    if (job->seconds[COMPUTE] > 0)
        bench_json_compute(&job->compute, stdout);
    else
        printf("null");
    printf(", \"cluster\": %s}\n", text);
    mics_free(job->memory, text);
    return MICS_OK;
}

static mics_status print(const bench_job *job)
{
    if (job->options->json)
        return print_json(job);
    if (job->seconds[LINKS] > 0)
        bench_print_links(&job->place, &job->links, &job->cluster, stdout);
    if (job->seconds[COMPUTE] > 0)
        bench_print_compute(&job->place, &job->compute, stdout);
    printf("%s %s\n", job->options->out, job->there ? "updated" : "written");
    return MICS_OK;
}

static mics_status finish(bench_job *job)
{
    if (job->world->first != 0)
        return MICS_OK;
    take_in(job);
    MICS_TRY(mics_cluster_finish(&job->cluster));
    MICS_TRY(bench_file_write(job->memory, job->options->out, &job->cluster));
    return print(job);
}

// ---- the whole ----

static mics_status bench_world(bench_job *job, mics_status parsed, bool *running_out)
{
    mics_status mine = parsed;
    if (mine == MICS_OK)
        mine = check_options(job);
    if (mine == MICS_OK)
        mine = open_subject(job);
    if (mine == MICS_OK)
        mine = open_file(job);
    MICS_TRY(run_world_agree(job->world, mine));
    MICS_TRY(share_out(job));
    *running_out = true;
    MICS_TRY(run_world_run(job->world, bench_rank, job));
    return finish(job);
}

static mics_status run(mics_memory *memory, const bench_options *options, mics_status parsed,
                       bool *running_out)
{
    bench_job job = {.memory = memory, .options = options};
    const run_world_spec spec = {
        .ranks = (int32_t)options->ranks, .nodes = (int32_t)options->nodes, .timeout_s = TIMEOUT_S};
    mics_status status = run_world_open(memory, &spec, &job.world);
    if (status == MICS_OK)
        status = bench_world(&job, parsed, running_out);
    mics_log_release(status != MICS_OK, -1);
    run_world_close(job.world);
    bench_subject_close(&job.subject);
    return status;
}

int cmd_bench(int argc, char **argv)
{
    mics_memory *memory = NULL;
    bench_options options = {.out = "cluster.json", .seconds = DEFAULT_SECONDS};
    bool running = false;
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    mics_log_hold(mics_comm_mpi_launched()); // until it is known who speaks
    cli_parsed parsed = parse(memory, argc, argv, &options);
    mics_status status = parsed == CLI_PARSED_WRONG ? MICS_ERR_INVALID : MICS_OK;
    if (parsed != CLI_PARSED_HELP)
        status = run(memory, &options, status, &running);
    mics_free(memory, options.sets.items);
    mics_free(memory, options.arguments.items);
    mics_memory_close(memory);
    return cli_exit_status(status, running);
}
