// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// "sharding": "auto" where run.cluster says what the links are.
#include "mics/log.h"
#include "mics/planning.h"
#include "mics/run.h"
#include "sizing.h"

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

static mics_status open_planner(mics_memory *memory, const mics_run *run, const mics_model *model,
                                const run_budget *budget, mics_planner **planner_out)
{
    mics_plan_request request = mics_plan_request_of(run, model);
    request.nodes = budget->nodes;
    request.share_params = run->share_params && budget->shares;
    request.staging_bytes = budget->staging_bytes;
    request.threads = budget->threads;
    // Where nobody knows it, what the cluster's ranks have.
    request.memory_bytes = budget->limit_bytes == SIZE_MAX ? 0 : (double)budget->limit_bytes;
    int32_t nodes = 0;
    request.accelerator = budget->accelerator.used;
    request.precision = run_budget_precision(budget);
    request.math = math_of(run, budget);
    MICS_TRY(mics_cluster_open(memory, run->cluster, &request.cluster, &nodes));
    const int32_t per_node = mics_cluster_ranks_per_node(&request.cluster);
    if (per_node != budget->ranks / budget->nodes)
        return mics_json_fail(
            run->json, "run.cluster", MICS_ERR_INVALID,
            "%s has %d ranks a node, and this run %d (%d ranks, %d nodes); take a "
            "cluster with as many, or leave run.cluster out",
            run->cluster, (int)per_node, (int)(budget->ranks / budget->nodes), (int)budget->ranks,
            (int)budget->nodes);
    return mics_planner_open(memory, &request, planner_out);
}

// What the run file leaves open is the sharding alone. Deeper prefetches than are planned cost no
// less memory, so they are left to what fits afterwards.
static mics_plan_space space_of(const mics_run *run)
{
    const bool two_stage = run->collectives != MICS_COLLECTIVES_RING;
    return (mics_plan_space){
        .micro_batch = run->micro_batch,
        .recompute_given = true,
        .recompute = run->recompute,
        .prefetch_given = !run->prefetch_auto,
        .prefetch = run->prefetch < MICS_PLAN_MAX_PREFETCH ? run->prefetch : MICS_PLAN_MAX_PREFETCH,
        .layered_micro_steps = run->layered_kept > 0 ? run->layered_kept : run->layered_micro_steps,
        .layered_by_rule = run->layered_auto && run->layered_kept == 0,
        .collectives_given = true,
        .gather_two_stage = two_stage && run->collectives != MICS_COLLECTIVES_RING_GATHERS,
        .reduce_two_stage = two_stage,
        .boundary_two_stage = two_stage,
    };
}

static void say(const mics_run *run, const mics_planner *planner, mics_plan_result *result)
{
    mics_plan_entry *best = &result->entries[0];
    mics_plan_explain(planner, best, best);
    mics_log(MICS_LOG_INFO, "\"sharding\": \"auto\" for %s: %s, %.1f ms a step; %s", run->cluster,
             best->name, best->step_us * 1e-3, best->why);
}

mics_status run_plan_sharding(mics_memory *memory, const mics_run *run, const mics_model *model,
                              const run_budget *budget, mics_sharding *sharding_out,
                              bool *planned_out)
{
    const mics_plan_space space = space_of(run);
    mics_planner *planner = NULL;
    mics_plan_result *result = NULL;
    MICS_TRY(open_planner(memory, run, model, budget, &planner));
    const mics_status status = mics_planner_search(planner, &space, 1, &result);
    *planned_out = status == MICS_OK && result->count > 0;
    if (*planned_out) {
        say(run, planner, result);
        *sharding_out = result->entries[0].choice.sharding;
    }
    mics_plan_result_close(result);
    mics_planner_close(planner);
    return status;
}
