// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// "sharding": "auto". Planned with what a machine has in all, never with what happens to be free:
// the sharding decides the order of sums, so the same run must get the same one in each start.
#include "run/auto.h"
#include "mics/log.h"
#include "mics/run.h"
#include "plan/offers/pick.h"
#include "plan/offers/planning.h"
#include "plan/search/baseline.h"
#include "run/run_schedule.h"
#include "run/usual.h"
#include "sizing.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Of a rank, where neither run.threads nor run.cluster is given.
enum { USUAL_THREADS = 8 };

static mics_math math_of(const mics_run *run, const run_budget *budget)
{
    switch (budget->dtype) {
    case MICS_DTYPE_BF16:
        return MICS_MATH_BF16;
    case MICS_DTYPE_FP16:
        return MICS_MATH_FP16;
    default:
        return run->precision == MICS_RUN_PRECISION_TF32 ? MICS_MATH_TF32 : MICS_MATH_FP32;
    }
}

// Of a rank. Those of this machine would make the choice, and with it the bits, depend on its
// cores.
static int32_t threads_of(const mics_run *run)
{
    const bool usual = strcmp(run->cluster, "none") == 0;
    return run->threads > 0 || !usual ? run->threads : USUAL_THREADS;
}

static mics_status open_cluster(mics_memory *memory, const mics_run *run, const run_budget *budget,
                                mics_cluster *cluster_out)
{
    char name[4096];
    int32_t nodes = 0, counted = 0;
    if (strcmp(run->cluster, "none") == 0)
        return run_usual_cluster(budget, threads_of(run), cluster_out);
    MICS_TRY(mics_cluster_open(memory, run->cluster, cluster_out, &nodes));
    MICS_TRY(mics_cluster_split(run->cluster, name, sizeof name, &counted));
    const int32_t per_node = mics_cluster_ranks_per_node(cluster_out);
    // A file may be of more nodes than the run has.
    if (counted > 0 && counted != budget->nodes)
        return mics_json_fail(run->json, "run.cluster", MICS_ERR_INVALID,
                              "%s is of %d nodes, and this run has %d; leave the number out",
                              run->cluster, (int)counted, (int)budget->nodes);
    if (per_node == budget->ranks / budget->nodes)
        return MICS_OK;
    return mics_json_fail(run->json, "run.cluster", MICS_ERR_INVALID,
                          "%s has %d ranks a node, and this run %d (%d ranks, %d nodes); take a "
                          "cluster with as many, or leave run.cluster out",
                          run->cluster, (int)per_node, (int)(budget->ranks / budget->nodes),
                          (int)budget->ranks, (int)budget->nodes);
}

// Memory that a rank may have, without what the planner does not know of. Where nobody knows it,
// what the cluster's ranks have.
static double memory_bytes(const run_budget *budget, const mics_accelerator *device,
                           size_t unplanned)
{
    const double there = device->memory_bytes - device->reserve_bytes;
    const double all = budget->auto_bytes == SIZE_MAX ? (1 - MICS_PLAN_RESERVE) * there
                                                      : (double)budget->auto_bytes;
    return fmax(all - (double)unplanned, 1);
}

static mics_status open_planner(mics_memory *memory, const mics_run *run, const mics_model *model,
                                const run_budget *budget, size_t unplanned,
                                mics_planner **planner_out)
{
    mics_plan_request request = mics_plan_request_of(run, model);
    request.nodes = budget->nodes;
    request.share_params = run->share_params && budget->shares;
    request.staging_bytes = budget->staging_bytes;
    request.threads = threads_of(run);
    request.accelerator = budget->accelerator.used;
    request.precision = run_budget_precision(budget);
    request.math = math_of(run, budget);
    MICS_TRY(open_cluster(memory, run, budget, &request.cluster));
    request.cluster.accelerator.host_memory_bytes = (double)budget->host_bytes;
    request.memory_bytes = memory_bytes(budget, &request.cluster.accelerator, unplanned);
    return mics_planner_open(memory, &request, planner_out);
}

// ---- what is said ----

// A checkpoint's sharding that could not stay.
static void log_changed(const mics_run *run, const run_budget *budget)
{
    const mics_sharding *kept = &run->kept_sharding;
    char experts[24] = "";
    if (!run->sharding_auto || kept->params < 1 || run->kept_ranks < 1)
        return;
    if (run->kept_experts > 1)
        snprintf(experts, sizeof experts, ", E = %d,", (int)run->kept_experts);
    if (run->kept_ranks == budget->ranks)
        mics_log(
            MICS_LOG_INFO,
            "\"sharding\": \"auto\" is chosen anew: the checkpoint's P | G | O = %d | %d | %d%s "
            "does not do for %d nodes and run.min_replicas %d",
            (int)kept->params, (int)kept->grads, (int)kept->optimizer, experts, (int)budget->nodes,
            (int)run->min_replicas);
    else
        mics_log(
            MICS_LOG_INFO,
            "\"sharding\": \"auto\" is chosen anew: the checkpoint's P | G | O = %d | %d | %d%s "
            "is of %d ranks, and there are %d",
            (int)kept->params, (int)kept->grads, (int)kept->optimizer, experts,
            (int)run->kept_ranks, (int)budget->ranks);
}

// "1.23", "47503".
static const char *ms_text(double us, char text[32])
{
    snprintf(text, 32, fabs(us) < 1e6 ? "%.3g" : "%.0f", us * 1e-3);
    return text;
}

// What it costs to keep every state twice, where the best keeps some once: "; run.min_replicas 2
// would take mics(2), 1.2 ms (3.4 %) more".
static mics_status price_replicas(mics_planner *planner, const mics_run *run,
                                  const mics_plan_entry *best, char *text, size_t capacity)
{
    mics_plan_result *result = NULL;
    char more[32];
    text[0] = '\0';
    const int32_t ranks = mics_planner_ranks(planner);
    if (!run->sharding_auto || ranks == 1 || ranks / best->choice.sharding.optimizer > 1)
        return MICS_OK;
    MICS_TRY(offers_search(planner, run, 2, &result));
    if (result->count == 0) {
        snprintf(text, capacity,
                 "; masters and moments exist once, and nothing that keeps them twice fits");
    } else {
        const mics_plan_entry *twice = offers_pick(result);
        const double more_us = twice->step_us - best->step_us;
        snprintf(text, capacity,
                 "; masters and moments exist once: run.min_replicas=2 would take %s, %s ms a step "
                 "(%.1f %%) %s",
                 twice->name, ms_text(fabs(more_us), more), 100 * fabs(more_us) / best->step_us,
                 more_us < 0 ? "less" : "more");
    }
    mics_plan_result_close(result);
    return MICS_OK;
}

static mics_status say(const mics_run *run, const run_budget *budget, mics_planner *planner,
                       const mics_plan_entry *chosen)
{
    const bool usual = strcmp(run->cluster, "none") == 0;
    char form[MICS_RECOMPUTE_BYTES], recompute[80] = "";
    char batch[64] = "", price[192], links[MICS_CLUSTER_NAME_BYTES + 64], ms[32];
    mics_plan_entry best = *chosen;
    const bool alone = !run->sharding_auto || budget->ranks == 1;
    if (alone && !run->batch_auto &&
        !(run->recompute_auto && mics_recomputes(best.choice.recompute)) &&
        best.choice.offload_units == 0)
        return MICS_OK; // nothing was chosen
    snprintf(links, sizeof links, usual ? "for usual links (run.cluster names yours)" : "for %s",
             run->cluster);
    mics_plan_explain(planner, &best, &best);
    if (budget->auto_bytes == SIZE_MAX && usual) {
        mics_log(MICS_LOG_INFO,
                 "\"sharding\": \"auto\": no GPU here says what memory a rank may have; "
                 "run.memory_limit says it, or run.cluster");
        char *spare = strrchr(best.why, ';'); // what is to spare comes last
        if (spare != NULL)
            *spare = '\0';
    }
    if (run->batch_auto)
        snprintf(batch, sizeof batch, ", micro-batch %lld x %d micro-steps",
                 (long long)best.choice.micro_batch, (int)best.choice.micro_steps);
    if (mics_recomputes(best.choice.recompute))
        snprintf(recompute, sizeof recompute, ", run.recompute %s",
                 mics_recompute_text(best.choice.recompute, false, form));
    MICS_TRY(price_replicas(planner, run, &best, price, sizeof price));
    mics_log(MICS_LOG_INFO, "%s %s: %s%s%s, %s ms a step; %s%s",
             run->sharding_auto ? "\"sharding\": \"auto\"" : "chosen", links, best.name, batch,
             recompute, ms_text(best.step_us, ms), best.why, price);
    return MICS_OK;
}

// ---- the choice ----

static void take(const mics_plan_choice *choice, mics_run *run)
{
    run->sharding = choice->sharding;
    run->experts = choice->experts;
    run->micro_batch = choice->micro_batch;
    run->micro_steps = choice->micro_steps;
    run->recompute = choice->recompute;
    run->recompute_open = false;
    run->offload_units = choice->offload_units;
    run->early_gathers = choice->early_gathers;
    run->early_gathers_auto = false;
    if (run->prefetch_auto)
        run->prefetch = choice->prefetch;
}

// Plans with less memory by `unplanned`; of the schedule the bytes that the planner did not know.
static mics_status plan(mics_memory *memory, mics_run *run, const mics_model *model,
                        const run_budget *budget, size_t *unplanned, mics_schedule **schedule_out)
{
    mics_planner *planner = NULL;
    mics_plan_result *result = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(open_planner(memory, run, model, budget, *unplanned, &planner));
    MICS_TRY_OUT(offers_search(planner, run, 0, &result));
    const mics_plan_entry *best = offers_pick(result);
    take(&best->choice, run);
    MICS_TRY_OUT(run_schedule_make(memory, run, model, budget, schedule_out));
    const size_t total = (*schedule_out)->ledger.total;
    const bool retries = *unplanned == 0 && total > budget->auto_bytes && result->count > 0 &&
                         total > best->memory.total;
    *unplanned = retries ? total - best->memory.total : 0;
    if (!retries && result->count > 0)
        MICS_TRY_OUT(say(run, budget, planner, best));
out:
    mics_plan_result_close(result);
    mics_planner_close(planner);
    return status;
}

mics_status run_plan_auto(mics_memory *memory, mics_run *run, const mics_model *model,
                          const run_budget *budget, mics_schedule **schedule_out)
{
    mics_schedule *schedule = NULL;
    size_t unplanned = 0;
    log_changed(run, budget);
    mics_status status = plan(memory, run, model, budget, &unplanned, &schedule);
    if (status == MICS_OK && unplanned > 0) { // this machine's threads have workspaces of their own
        mics_schedule_close(schedule);
        schedule = NULL;
        status = plan(memory, run, model, budget, &unplanned, &schedule);
    }
    if (status == MICS_OK)
        *schedule_out = schedule;
    else
        mics_schedule_close(schedule);
    return status;
}
