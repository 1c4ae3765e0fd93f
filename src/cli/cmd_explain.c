// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics explain: what a run would be, without running anything.
#include "args.h"
#include "cli.h"
#include "explain.h"

static const char about[] =
    "Prints what a run would be: every key with where its value comes from, the mesh and its\n"
    "groups, memory, bytes inside and between nodes, and the schedule of a step. Runs nothing, so\n"
    "run.device \"cuda\" needs no GPU here.";

typedef struct explain_options {
    cli_list arguments, sets;
    int64_t ranks, nodes;
    bool json, all_steps;
} explain_options;

static cli_parsed parse(mics_memory *memory, int argc, char **argv, explain_options *options)
{
    const cli_option table[] = {
        {"ranks", CLI_INT, "N", "ranks; default 1", &options->ranks, 1, CLI_RANKS_MAX},
        {"nodes", CLI_INT, "M", "nodes of equally many ranks; default 1", &options->nodes, 1,
         CLI_RANKS_MAX},
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
    return cli_parse(memory, &spec, argc, argv, &options->arguments);
}

static mics_status explain(mics_memory *memory, const explain_options *options)
{
    mics_job *job = NULL;
    const mics_job_spec spec = {.memory = memory,
                                .file = options->arguments.items[0],
                                .sets = options->sets.items,
                                .set_count = options->sets.count,
                                .ranks = (int32_t)options->ranks,
                                .nodes = (int32_t)options->nodes};
    MICS_TRY(mics_job_size(&spec, &job));
    mics_status status = options->json ? cli_explain_json(memory, job)
                                       : cli_explain_text(memory, job, options->all_steps);
    (void)mics_job_close(job);
    return status;
}

int cmd_explain(int argc, char **argv)
{
    mics_memory *memory = NULL;
    explain_options options = {.ranks = 1, .nodes = 1};
    if (mics_memory_open(&memory) != MICS_OK)
        return CLI_EXIT_FAILED;
    cli_parsed parsed = parse(memory, argc, argv, &options);
    mics_status status = parsed == CLI_PARSED_WRONG ? MICS_ERR_INVALID : MICS_OK;
    if (parsed == CLI_PARSED_RUN)
        status = explain(memory, &options);
    mics_free(memory, options.arguments.items);
    mics_free(memory, options.sets.items);
    mics_memory_close(memory);
    return cli_exit_status(status, false);
}
