// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics bench: measures links and computation where it runs (src/measure), and prints them.
#include "bench.h"
#include "cli.h"
#include "mics/run.h"
#include <stdio.h>
#include <string.h>

static const char comm_about[] =
    "Measures messages intra-node and inter-node: latency, rate by size, what they take of a\n"
    "core, and how computation fares beside them. Under mpirun or srun the ranks are MPI's,\n"
    "otherwise --ranks threads of this process. Updates the links of a cluster file for mics plan.";
static const char compute_about[] =
    "Measures the ops of a model as training runs them, on all ranks at once: of a run file, of a\n"
    "model configuration, or of GPT-2. Updates the computation of a cluster file for mics plan.";

enum { COMPUTE_FLAGS = 4 }; // that bench compute alone takes, the first of the table

typedef struct bench_options {
    measure_spec spec;
    cli_list sets;
    int64_t ranks, nodes, threads;
    const char *device;
    bool json;
} bench_options;

// ---- arguments ----

static mics_status parse_half(cli_call *call, bench_options *options)
{
    measure_spec *spec = &options->spec;
    const bool compute = spec->compute;
    const cli_option table[] = {
        {"config", CLI_TEXT, "FILE", "a Hugging Face config.json, in place of a run file",
         &spec->config, 0, 0},
        {"batch", CLI_INT, "N", "sequences of a micro-step; default: the run's, or 1", &spec->batch,
         1, 1 << 20},
        {"sequence", CLI_INT, "N", "tokens of a sequence; default: the run's, or the model's most",
         &spec->sequence, 1, 1 << 24},
        {"set", CLI_EACH, "a.b=v", "set one key of the run file; may be repeated", &options->sets,
         0, 0},
        {"ranks", CLI_INT, "N",
         compute ? "ranks, as threads of this process; default 1"
                 : "ranks, as threads of this process",
         &options->ranks, 1, CLI_MAX_RANKS},
        {"nodes", CLI_INT, "M", "treat the ranks as M nodes; default: what MPI finds, or 1",
         &options->nodes, 1, CLI_MAX_RANKS},
        {"threads", CLI_INT, "N",
         compute ? "of a rank; default: run.threads, or its share of the cores"
                 : "that compute in a rank; default: its share of the cores",
         &options->threads, 1, 4096},
        {"out", CLI_TEXT, "FILE", "the cluster file, made or updated; default cluster.json",
         &spec->out, 0, 0},
        {"seconds", CLI_REAL, "S", "of wall clock, in all; default 20", &spec->seconds, 0, 0},
        {"device", CLI_TEXT, "WHAT",
         "cpu, cuda or auto; default: the run's, or auto: GPUs if there are", &options->device, 0,
         0},
        {"force", CLI_FLAG, NULL, "write the file even where it mispredicts a step twofold",
         &spec->force, 0, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
        {"quiet", CLI_FLAG, NULL, "print nothing but warnings, errors and what --json does",
         &options->spec.quiet, 0, 0},
    };
    const int32_t first = compute ? 0 : COMPUTE_FLAGS;
    const cli_spec words = {
        .verb = compute ? "bench compute" : "bench comm",
        .arguments = compute ? "[RUN.json]" : "",
        .about = compute ? compute_about : comm_about,
        .options = table + first,
        .option_count = (int32_t)(sizeof table / sizeof table[0]) - first,
        .max_arguments = compute,
    };
    return cli_parse(call, &words);
}

static mics_status parse(cli_call *call, bench_options *options)
{
    static const char *const names[] = {"comm", "compute"};
    const char *name = call->argc > 0 ? call->argv[0] : "";
    if (call->describe != NULL) {
        MICS_TRY(parse_half(call, options));
        options->spec.compute = true;
        return parse_half(call, options);
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        printf(
            "usage: mics bench comm [flags]\n       mics bench compute [RUN.json] [flags]\n\n%s\n\n"
            "%s\n\nmics bench comm --help and mics bench compute --help list the flags.\n",
            comm_about, compute_about);
        call->helped = true;
        return MICS_OK;
    }
    options->spec.compute = strcmp(name, names[1]) == 0;
    if (options->spec.compute || strcmp(name, names[0]) == 0) {
        call->argc--;
        call->argv++;
        return parse_half(call, options);
    }
    const char *near = call->argc > 0 ? cli_nearest(name, names, 2) : NULL;
    if (near != NULL)
        return mics_fail(MICS_ERR_INVALID,
                         "mics bench: measures no \"%.40s\"; did you mean \"%s\"?", name, near);
    return mics_fail(MICS_ERR_INVALID,
                     "mics bench: say what to measure: mics bench comm, or mics bench compute");
}

static mics_status take_device(bench_options *options)
{
    measure_spec *spec = &options->spec;
    spec->has_device = options->device != NULL;
    for (int i = 0; spec->has_device && i <= MICS_RUN_DEVICE_CUDA; i++) {
        spec->device = (mics_run_device)i;
        if (strcmp(mics_run_device_text(spec->device), options->device) == 0)
            return MICS_OK;
    }
    if (!spec->has_device)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "mics bench: --device %.40s: cpu, cuda or auto",
                     options->device);
}

static mics_status check(const cli_call *call, const bench_options *options)
{
    if (options->spec.config == NULL || (call->arguments.count == 0 && options->sets.count == 0))
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID, "mics bench compute: --config stands in place of RUN.json "
                                       "and --set; leave one out");
}

// ---- the whole ----

static mics_status bench(cli_call *call, bench_options *options)
{
    measure_spec *spec = &options->spec;
    measure_report report;
    if (spec->status == MICS_OK)
        spec->status = check(call, options);
    if (spec->status == MICS_OK)
        spec->status = take_device(options);
    spec->run = call->arguments.count > 0 ? call->arguments.items[0] : NULL;
    spec->sets = options->sets.items;
    spec->set_count = options->sets.count;
    spec->ranks = (int32_t)options->ranks;
    spec->nodes = (int32_t)options->nodes;
    spec->threads = (int32_t)options->threads;
    MICS_TRY(measure_cluster(call->memory, spec, &call->running, &report));
    if (!report.first)
        return MICS_OK;
    if (options->json)
        return cli_bench_json(call->memory, spec->out, &report);
    if (!spec->quiet)
        cli_bench_text(spec->out, &report);
    return MICS_OK;
}

mics_status cmd_bench(cli_call *call)
{
    bench_options options = {.spec = {.out = "cluster.json", .seconds = 20}};
    mics_log_hold(mics_job_is_launched()); // until it is known who speaks
    options.spec.status = parse(call, &options);
    cli_log_quiet(options.spec.quiet);
    return call->helped ? MICS_OK : bench(call, &options);
}
