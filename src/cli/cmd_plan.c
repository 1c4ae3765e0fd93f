// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics plan: which sharding and batch, how fast, at what price, before anything is rented.
#include "cli.h"
#include "plan.h"
#include <string.h>

typedef struct plan_options {
    cli_list sets;
    const char *cluster, *precision, *sweep, *svg;
    int64_t top;
    bool json;
} plan_options;

static const char about[] =
    "Plans a run for a cluster: searches shardings P | G | O, micro-batches, recomputation and\n"
    "collectives for the run file's global batch, makes their schedules, and times them on the\n"
    "cluster's links and accelerators. Reads no data and runs nothing.";

static const char notes[] =
    "A cluster is one of the catalogue, or a file of the same kind (docs/clusters.md):\n"
    "  mics plan RUN.json --cluster p4d.24xlarge:8\n"
    "  mics plan RUN.json --cluster cluster.json:8 --sweep nodes=1..64 --svg curve.svg\n"
    "--set train_batch_size=N sets the global batch; docs/plan.md says what is modelled.";

static mics_status parse(cli_call *call, plan_options *options)
{
    const cli_option table[] = {
        {"cluster", CLI_TEXT, "NAME:N", "cluster and its nodes, or FILE[:N]", &options->cluster, 0,
         0},
        {"top", CLI_INT, "N", "plans to show; default 5", &options->top, 1, 100},
        {"precision", CLI_TEXT, "WHAT",
         "auto, bf16, fp16, mixed, tf32 or fp32; default: the run file's", &options->precision, 0,
         0},
        {"sweep", CLI_TEXT, "WHAT", "curves: nodes=1..64, nodes=2,4,6, or P", &options->sweep, 0,
         0},
        {"svg", CLI_TEXT, "FILE", "write the sweep's picture", &options->svg, 0, 0},
        {"set", CLI_EACH, "a.b=v", "set one key of the run file; may be repeated", &options->sets,
         0, 0},
        {"json", CLI_FLAG, NULL, "print one JSON object", &options->json, 0, 0},
    };
    const cli_spec spec = {
        .verb = "plan",
        .arguments = "RUN.json",
        .about = about,
        .options = table,
        .option_count = sizeof table / sizeof table[0],
        .min_arguments = 1,
        .max_arguments = 1,
        .notes = notes,
    };
    return cli_parse(call, &spec);
}

static mics_status plan_once(const mics_plan *plan, const plan_options *options)
{
    mics_plan_found found = {.planner = NULL};
    mics_status status = mics_plan_find(plan, plan->nodes, (int32_t)options->top, &found);
    if (status == MICS_OK && found.result->count == 0)
        status = mics_plan_fail_fit(plan, &found);
    else if (status == MICS_OK)
        (options->json ? cli_plan_json : cli_plan_text)(plan, &found);
    mics_plan_found_close(&found);
    return status;
}

static mics_status plan_sweep(const mics_plan *plan, const plan_options *options)
{
    mics_plan_sweep *sweep = NULL;
    MICS_TRY(mics_plan_sweep_open(plan, options->sweep, &sweep));
    mics_status status = MICS_OK;
    if (options->svg != NULL)
        status = cli_sweep_svg(plan, sweep, options->svg);
    if (status == MICS_OK)
        (options->json ? cli_sweep_json : cli_sweep_text)(plan, sweep);
    mics_plan_sweep_close(sweep);
    return status;
}

static mics_status run_plan(cli_call *call, const plan_options *options)
{
    const mics_plan_spec spec = {
        .file = call->arguments.items[0],
        .sets = options->sets.items,
        .set_count = options->sets.count,
        .cluster = options->cluster,
        .any_nodes = options->sweep != NULL && strncmp(options->sweep, "nodes", 5) == 0,
        .precision = options->precision,
    };
    mics_plan *plan = NULL;
    if (options->svg != NULL && options->sweep == NULL)
        return mics_fail(MICS_ERR_INVALID, "--svg draws a sweep; give --sweep nodes=1..64 or P");
    if (options->cluster == NULL)
        return mics_fail(MICS_ERR_INVALID, "mics plan needs --cluster, as in --cluster "
                                           "p4d.24xlarge:8 or --cluster cluster.json:8");
    MICS_TRY(mics_plan_open(call->memory, &spec, &plan));
    const mics_status status =
        options->sweep != NULL ? plan_sweep(plan, options) : plan_once(plan, options);
    mics_plan_close(plan);
    return status;
}

mics_status cmd_plan(cli_call *call)
{
    plan_options options = {.top = 5};
    MICS_TRY(parse(call, &options));
    return call->helped ? MICS_OK : run_plan(call, &options);
}
