// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics explain: what a run would be, without running anything.
#include "base/size.h"
#include "cli.h"
#include "explain.h"
#include "mics/log.h"
#include "source.h"

static const char about[] =
    "Prints what a run would be: every key with where its value comes from, the mesh and its\n"
    "groups, memory, bytes intra-node and inter-node, and the schedule of a step. Runs nothing, "
    "so\n"
    "run.device \"cuda\" needs no GPU here.";

typedef struct explain_options {
    cli_list sets;
    cli_source source;
    int64_t ranks, nodes, steps;
    bool json, all_steps;
} explain_options;

static mics_status parse(cli_call *call, explain_options *options)
{
    const cli_option table[] = {
        {"ranks", CLI_INT, "N", "ranks; default 1", &options->ranks, 1, CLI_MAX_RANKS},
        {"nodes", CLI_INT, "M", "nodes of equally many ranks; default 1", &options->nodes, 1,
         CLI_MAX_RANKS},
        {"steps", CLI_INT, "N", "of N steps, whatever the file says", &options->steps, 1, 0},
        CLI_SOURCE_OPTIONS(&options->source),
        {"set", CLI_EACH, "a.b=v", "set one key of the run file; may be repeated", &options->sets,
         0, 0},
        {"all-steps", CLI_FLAG, NULL, "print the whole schedule, however long", &options->all_steps,
         0, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "explain",
        .arguments = "RUN.json",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
    };
    return cli_parse(call, &spec);
}

// What does not fit would not be trained, so it is no success.
static mics_status check_fits(const mics_job *job)
{
    char needed[32], there[32];
    const double total = (double)mics_job_schedule(job)->ledger.total;
    const size_t limit = mics_job_facts_get(job).limit_bytes;
    if (limit == SIZE_MAX || total <= (double)limit)
        return MICS_OK;
    return mics_fail(MICS_ERR_MEMORY,
                     "the run does not fit: a rank needs %s and may use %s; mics train says what "
                     "would fit",
                     mics_size_text(total, needed, sizeof needed),
                     mics_size_text((double)limit, there, sizeof there));
}

static mics_status explain(cli_call *call, const explain_options *options, const cli_sets *sets)
{
    mics_job *job = NULL;
    const mics_job_spec spec = {.memory = call->memory,
                                .file = call->arguments.items[0],
                                .sets = sets->items,
                                .set_count = sets->count,
                                .ranks = (int32_t)options->ranks,
                                .nodes = (int32_t)options->nodes};
    MICS_TRY(mics_job_size(&spec, &job));
    mics_status status = options->json ? cli_explain_json(call->memory, job)
                                       : cli_explain_text(call->memory, job, options->all_steps);
    if (status == MICS_OK)
        status = check_fits(job);
    (void)mics_job_close(job);
    return status;
}

mics_status cmd_explain(cli_call *call)
{
    explain_options options = {.ranks = 1, .nodes = 1};
    MICS_TRY(parse(call, &options));
    if (call->helped)
        return MICS_OK;
    cli_sets sets = {0};
    mics_status status = cli_sets_init(&sets, call->memory, &options.sets, &options.source, 1);
    cli_sets_steps(&sets, options.steps);
    if (status == MICS_OK)
        status = explain(call, &options, &sets);
    cli_sets_fini(&sets);
    return status;
}
