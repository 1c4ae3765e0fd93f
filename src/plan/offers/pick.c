// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
#include "pick.h"

// What the run file leaves open.
static mics_plan_space space_of(const mics_run *run)
{
    const bool two_stage = run->collectives != MICS_COLLECTIVES_RING;
    static const mics_sharding any = {0, 0, 0};
    return (mics_plan_space){
        .sharding = run->sharding_auto ? any : run->sharding,
        .experts = run->sharding_auto ? 0 : run->experts,
        .sequence = run->sequence,
        .micro_batch = run->batch_auto ? 0 : run->micro_batch,
        .recompute_given = !run->recompute_auto,
        .recompute_open = run->recompute_open,
        .recompute = run->recompute,
        .offload_given = !run->offload_auto,
        .offload_units = run->offload_auto ? 0 : run->offload_units,
        .prefetch_given = !run->prefetch_auto,
        .prefetch = run->prefetch,
        .layered_micro_steps = run->layered_kept > 0 ? run->layered_kept : run->layered_micro_steps,
        .layered_by_rule = run->layered_auto && run->layered_kept == 0,
        .early_given = !run->early_gathers_auto,
        .early_gathers = run->early_gathers,
        .collectives_given = true,
        .gather_two_stage = two_stage && run->collectives != MICS_COLLECTIVES_RING_GATHERS,
        .reduce_two_stage = two_stage,
        .boundary_two_stage = two_stage,
    };
}

// Times nearer to each other than this are ties: no figure of a cluster is better known.
static const double tie_share = 0.01;

enum { MAX_TIES = 16 };

bool offers_is_open(const mics_run *run)
{
    return run->sharding_auto || run->batch_auto || run->recompute_auto || run->recompute_open ||
           run->offload_auto;
}

const mics_plan_entry *offers_pick(const mics_plan_result *result)
{
    const mics_plan_entry *best = result->entries;
    for (int32_t i = 1; i < result->count; i++) {
        const mics_plan_entry *entry = &result->entries[i];
        if (entry->step_us <= (1 + tie_share) * result->entries[0].step_us &&
            entry->sent.inter < best->sent.inter)
            best = entry;
    }
    return result->count > 0 ? best : &result->nearest;
}

mics_status offers_search(mics_planner *planner, const mics_run *run, int32_t min_replicas,
                          mics_plan_result **result_out)
{
    mics_plan_space space = space_of(run);
    space.min_replicas = min_replicas;
    space.fitting_only = space.fills_memory = true;
    return mics_planner_search(planner, &space, MAX_TIES, result_out);
}
