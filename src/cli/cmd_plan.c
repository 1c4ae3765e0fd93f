// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// mics plan: which sharding and batch, how fast, at what price, before anything is rented.
#include "cli.h"
#include "plan/search/baseline.h"
#include "plan/tables/found.h"
#include "plan/tables/offer.h"
#include "plan/tables/sweep.h"
#include "plan/tables/tables.h"
#include <string.h>

typedef struct plan_options {
    mics_plan_spec spec;
    cli_list clusters;
    const char *sweep, *svg;
    mics_plan_goal goal;
    int32_t top;
    // Below 0: not given. GB/s: 0.
    double reserve_gib, failures, restart_s, preemptions, checkpoint_gb_per_s;
    bool json, list, local, wide, quiet;
} plan_options;

enum { MAX_DEGREE = 1 << 20, MAX_RESERVE_GIB = 1 << 16 };

// Far more than anybody has, and products of such are still finite.
static const int64_t max_goal = 1000000000000000000;

#define PLAN_DEGREE(name, metavar, what, member)                                                   \
    {                                                                                              \
        name, CLI_COUNT, metavar, "of megatron's plan: " what, AT(spec.pipeline.member), 1,        \
            MAX_DEGREE                                                                             \
    }

#define AT(member) offsetof(plan_options, member)
static const cli_option flags[] = {
    {"cluster", CLI_EACH, "NAME:N",
     "cluster and its nodes, FILE[:N], or all[:N], the catalogue; several are compared",
     AT(clusters), 0, 0},
    {"tokens", CLI_LARGE, "N", "tokens to train, as 300e9 or 15T: days and price", AT(goal.tokens),
     1, max_goal},
    {"days", CLI_POSITIVE, "D", "time there is", AT(goal.days), 0, max_goal},
    {"budget", CLI_POSITIVE, "USD", "money there is", AT(goal.usd), 0, max_goal},
    {"price", CLI_TEXT, "KIND",
     "on-demand, reserved or marketplace; default: the first that is known", AT(spec.price), 0, 0},
    {"planning-seconds", CLI_POSITIVE, "S", "of several clusters; default 300", AT(spec.planning_s),
     0, 1000000},
    {"failures-per-node-day", CLI_REAL, "X", "of a node; default: as published", AT(failures), 0,
     10000},
    {"checkpoint-bandwidth", CLI_POSITIVE, "GB/S", "of a node, to the disk of checkpoints",
     AT(checkpoint_gb_per_s), 0, 100000},
    {"restart-seconds", CLI_REAL, "S", "from a failure until checkpoints are read", AT(restart_s),
     0, 1000000},
    {"spot-price", CLI_POSITIVE, "USD", "of a spot node and hour",
     AT(goal.losses.spot_usd_per_node_hour), 0, 100000},
    {"preemptions-per-node-day", CLI_REAL, "X", "of a spot node", AT(preemptions), 0, 10000},
    {"local", CLI_FLAG, NULL, "plan local steps too (outer), as a training of its own", AT(local),
     0, 0},
    {"list", CLI_FLAG, NULL, "print the catalogue's clusters", AT(list), 0, 0},
    {"top", CLI_COUNT, "N", "plans to show; default 5", AT(top), 1, 100},
    {"precision", CLI_TEXT, "WHAT",
     "auto, bf16, fp16, fp8, mixed, tf32 or fp32; default: the run file's", AT(spec.precision), 0,
     0},
    {"attention", CLI_TEXT, "KERNEL",
     "unfused, flash1, flash2, flash3 or cudnn; default: the GPU's usual one", AT(spec.attention),
     0, 0},
    {"kernels", CLI_TEXT, "WHAT",
     "separate, as of PyTorch without torch.compile, or fused; default: between the two",
     AT(spec.kernels), 0, 0},
    {"software", CLI_TEXT, "NAME",
     "that other systems' rows and the run file's are of, as megatron-2025; default: mics",
     AT(spec.software), 0, 0},
    {"reserve", CLI_REAL, "GIB", "memory of a GPU to leave free; default 1 % of it",
     AT(reserve_gib), 0, MAX_RESERVE_GIB},
    PLAN_DEGREE("tensor", "T", "tensor-parallel ranks", tensor),
    PLAN_DEGREE("pipeline", "P", "pipeline stages", stages),
    PLAN_DEGREE("virtual", "V", "chunks of a stage, interleaved", chunks),
    PLAN_DEGREE("context", "C", "context-parallel ranks", context),
    PLAN_DEGREE("expert", "E", "expert-parallel ranks", expert),
    {"sweep", CLI_TEXT, "WHAT", "curves: nodes=1..64, nodes=2,4,6, or P", AT(sweep), 0, 0},
    {"svg", CLI_TEXT, "FILE", "write a picture: of the sweep, or of the clusters' time and price",
     AT(svg), 0, 0},
    {"steps", CLI_KEY_INT, "N", "of a run of N steps, whatever the file says", 0, 1, 0},
    CLI_SOURCE,
    CLI_ADAPTER,
    CLI_SETS,
    {"wide", CLI_FLAG, NULL, "tables of more than 120 columns, with every figure", AT(wide), 0, 0},
    CELL_JSON(plan_options),
    {"quiet", CLI_FLAG, NULL, "show no progress", AT(quiet), 0, 0},
};

// What is given as 0 is none, and not the default.
static double given(double value)
{
    return value < 0 ? 0 : (value > 0 ? value : -1);
}

static void take_losses(plan_options *options)
{
    mics_plan_losses *losses = &options->goal.losses;
    losses->failures_per_node_day = given(options->failures);
    losses->restart_s = given(options->restart_s);
    losses->preemptions_per_node_day = given(options->preemptions);
    losses->checkpoint_bytes_per_s = options->checkpoint_gb_per_s * 1e9;
}

static printer report_of(const plan_options *options)
{
    return (printer){.json = options->json, .digits = 9};
}

static mics_status plan_once(const mics_plan *plan, const plan_options *options)
{
    printer report = report_of(options);
    mics_plan_found found = {.planner = NULL};
    mics_status status = mics_plan_find(plan, plan->nodes, options->top, &found);
    if (status == MICS_OK)
        status = mics_plan_find_twice(&found);
    if (status == MICS_OK)
        status = mics_plan_check_degrees(plan, &found);
    if (status == MICS_OK && found.result->count == 0)
        status = mics_plan_fail_fit(plan, &found);
    if (status == MICS_OK && options->local)
        status = mics_planner_local(found.planner, &found.result->entries[0].choice, &found.local);
    if (status == MICS_OK)
        plan_table_found(&report, plan, &found, &options->goal, options->wide);
    mics_plan_found_close(&found);
    return status;
}

static mics_status plan_sweep(const mics_plan *plan, const plan_options *options,
                              mics_progress **work)
{
    printer report = report_of(options);
    mics_plan_sweep *sweep = NULL;
    mics_status status = mics_plan_sweep_open(plan, options->sweep, &sweep);
    cli_work_close(work);
    MICS_TRY(status);
    if (options->svg != NULL)
        status = mics_plan_sweep_svg(plan, sweep, options->svg);
    if (status == MICS_OK)
        plan_table_sweep(&report, plan, sweep, &options->goal, options->wide);
    mics_plan_sweep_close(sweep);
    return status;
}

static mics_status compare_clusters(cli_call *call, const plan_options *options,
                                    mics_progress **work)
{
    printer report = report_of(options);
    mics_plan_offers *offers = NULL;
    if (options->sweep != NULL)
        return mics_fail(MICS_ERR_INVALID, "--sweep is of one cluster; give one --cluster");
    mics_status status =
        mics_plan_offers_open(call->memory, &options->spec, options->clusters.items,
                              options->clusters.count, &options->goal, &offers);
    cli_work_close(work);
    MICS_TRY(status);
    if (options->svg != NULL)
        status = mics_plan_offers_svg(offers, options->spec.file, options->svg);
    if (status == MICS_OK)
        plan_table_offers(&report, offers, &options->goal, options->wide);
    mics_plan_offers_close(offers);
    return status;
}

// One without a number of nodes is several, where a goal chooses among them.
static bool is_several(const plan_options *options)
{
    const mics_plan_goal *goal = &options->goal;
    const bool chooses = goal->tokens > 0 && (goal->days > 0 || goal->usd > 0);
    return options->clusters.count > 1 || mics_plan_is_all(options->clusters.items[0]) ||
           (chooses && options->sweep == NULL && strchr(options->clusters.items[0], ':') == NULL);
}

static const double min_checkpoint_gb_per_s = 1e-6;

static mics_status check_losses(const plan_options *options)
{
    const double given_gb = options->checkpoint_gb_per_s;
    if (given_gb > 0 && given_gb < min_checkpoint_gb_per_s)
        return mics_fail(MICS_ERR_INVALID, "--checkpoint-bandwidth %g: at least %g GB/s", given_gb,
                         min_checkpoint_gb_per_s);
    return MICS_OK;
}

// Preemptions are of spot nodes, which have a price.
static mics_status check_spot(const mics_plan *plan, const plan_options *options)
{
    if (options->preemptions < 0 || options->goal.losses.spot_usd_per_node_hour > 0 ||
        plan->cluster.prices[MICS_PRICE_SPOT] > 0)
        return MICS_OK;
    return mics_fail(MICS_ERR_INVALID,
                     "--preemptions-per-node-day is of spot nodes, and %s has no price of them; "
                     "give --spot-price",
                     plan->cluster.name);
}

static mics_status plan(cli_call *call, plan_options *options, mics_progress **work)
{
    mics_plan_spec *spec = &options->spec;
    mics_plan *plan = NULL;
    spec->sets = call->sets.items;
    spec->set_count = call->sets.count;
    spec->any_nodes = options->sweep != NULL && strncmp(options->sweep, "nodes", 5) == 0;
    spec->has_reserve = options->reserve_gib >= 0;
    spec->reserve_bytes = options->reserve_gib * (1 << 30);
    spec->listener = cli_work_open(call->memory, options->quiet, work);
    if (call->arguments.count == 0)
        return mics_fail(MICS_ERR_INVALID, "mics plan: missing: RUN.json, or a config.json; --list "
                                           "prints the clusters there are");
    MICS_TRY(cli_fetch(call, MICS_REMOTE_CONFIG, &call->arguments.items[0]));
    spec->file = call->arguments.items[0];
    if (options->clusters.count == 0)
        return mics_fail(MICS_ERR_INVALID, "mics plan needs --cluster, as in --cluster "
                                           "p4d.24xlarge:8 or --cluster cluster.json:8");
    if (options->svg != NULL && options->sweep == NULL && !is_several(options))
        return mics_fail(MICS_ERR_INVALID, "--svg draws a sweep, or several clusters; give --sweep "
                                           "nodes=1..64 or P, or another --cluster");
    if (options->local && (options->sweep != NULL || is_several(options)))
        return mics_fail(MICS_ERR_INVALID, "--local is of one cluster and number of nodes, as in "
                                           "--cluster p4d.24xlarge:8");
    if (is_several(options))
        return compare_clusters(call, options, work);
    spec->cluster = options->clusters.items[0];
    MICS_TRY(mics_plan_open(call->memory, spec, &plan));
    mics_status status = check_spot(plan, options);
    if (status == MICS_OK)
        status =
            options->sweep != NULL ? plan_sweep(plan, options, work) : plan_once(plan, options);
    mics_plan_close(plan);
    return status;
}

static mics_status run_plan(cli_call *call)
{
    plan_options options = {.spec.planning_s = 300,
                            .top = 5,
                            .reserve_gib = -1,
                            .failures = -1,
                            .restart_s = -1,
                            .preemptions = -1};
    MICS_TRY(cli_parse(call, &options));
    MICS_TRY(check_losses(&options));
    if (options.goal.tokens > 0 && options.goal.tokens < 1e6)
        mics_log(MICS_LOG_WARNING, "--tokens %.0f is that many tokens; billions are %.0fB",
                 options.goal.tokens, options.goal.tokens);
    take_losses(&options);
    if (options.list) {
        printer report = report_of(&options);
        if (call->arguments.count > 0)
            return mics_fail(MICS_ERR_INVALID, "--list prints the whole catalogue; remove %s",
                             call->arguments.items[0]);
        return plan_table_list(&report);
    }
    mics_progress *work = NULL;
    const mics_status status = plan(call, &options, &work);
    cli_work_close(&work);
    return status;
}

const cli_verb cmd_plan = {
    .name = "plan",
    .summary = "which sharding and batch for a cluster, how fast, at what price",
    .arguments = "RUN.json|config.json",
    .about =
        "Plans a run for a cluster: searches shardings P | G | O, micro-batches, recomputation "
        "and\n"
        "collectives for the run file's global batch, makes their schedules, and times them on "
        "the\n"
        "cluster's links and accelerators. Reads no data and runs nothing. A model's config.json "
        "alone\n"
        "is planned with sequences of 4096 tokens and some 4 million tokens a step.",
    CLI_OPTIONS(flags),
    .max_arguments = 1,
    .notes =
        "A cluster is one of the catalogue, or a file of the same kind (docs/clusters.md):\n"
        "  mics plan RUN.json --cluster p4d.24xlarge:8\n"
        "  mics plan config.json --cluster p5.48xlarge:8 --cluster p4d.24xlarge:32 --tokens 300e9\n"
        "  mics plan RUN.json --cluster cluster.json:8 --sweep nodes=1..64 --svg curve.svg\n"
        "--set train_batch_size=N sets the global batch; docs/plan.md says what is modelled.",
    .run = run_plan,
    .stopped = "nothing was written",
};
