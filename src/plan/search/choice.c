// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What follows from a choice alone: whether it can be, how its collectives run, and its schedule.
#include "plan/search/choice.h"
#include "mics/log.h"
#include "plan/search/planner.h"
#include "plan/search/probe.h"
#include "schedule/rules.h"
#include <stdio.h>

bool degree_has_stages(const mics_planner *planner, int32_t degree)
{
    return planner->ranks_per_node > 1 && degree > planner->ranks_per_node;
}

bool degree_shares(const mics_planner *planner, int32_t degree)
{
    const mics_plan_request *request = &planner->request;
    const bool rounds =
        request->precision == MICS_PRECISION_FP32 && request->params_dtype.intra != MICS_COMM_FP32;
    return request->share_params && !request->accelerator && !rounds && degree > 1 &&
           degree <= planner->ranks_per_node;
}

bool sums_directly(const mics_planner *planner, const mics_plan_choice *choice)
{
    return planner->request.precision == MICS_PRECISION_MIXED && !choice->sums_by_ring;
}

mics_status choice_mesh(const mics_planner *planner, mics_sharding sharding, mics_mesh *mesh_out)
{
    mics_mesh mesh;
    MICS_TRY(mics_mesh_init(planner->world, planner->request.nodes, sharding, &mesh));
    MICS_TRY(mics_mesh_spread_experts(&mesh, planner->experts));
    MICS_TRY(mics_mesh_cut_sequences(&mesh, planner->sequence));
    if (planner->world > planner->ranks)
        MICS_TRY(mics_mesh_part_islands(&mesh, planner->ranks));
    *mesh_out = mesh;
    return MICS_OK;
}

bool mics_planner_gathers_early(const mics_planner *planner, const mics_plan_choice *choice,
                                bool by_rule)
{
    const mics_plan_request *request = &planner->request;
    mics_schedule_spec spec = {.precision = request->precision,
                               .params_dtype = request->params_dtype,
                               .boundary_dtype = request->boundary_dtype,
                               .all_reduces = choice->all_reduces};
    if (choice_mesh(planner, choice->sharding, &spec.mesh) != MICS_OK)
        return false;
    return by_rule ? mics_schedule_early_by_rule(&spec) : mics_schedule_may_gather_early(&spec);
}

mics_status check_choice(const mics_planner *planner, const mics_plan_choice *choice)
{
    mics_mesh mesh;
    MICS_TRY(choice_mesh(planner, choice->sharding, &mesh));
    if (choice->micro_batch < 1 ||
        micro_steps_of(planner, choice->micro_batch) != choice->micro_steps ||
        planner->micro_batches[batch_index(planner, choice->micro_batch)] != choice->micro_batch)
        return mics_fail(
            MICS_ERR_INVALID,
            "micro-batch %lld x %d micro-steps x %d ranks is not the global batch %lld",
            (long long)choice->micro_batch, (int)choice->micro_steps,
            (int)(planner->world / planner->sequence), (long long)planner->request.global_batch);
    if (choice->prefetch < 0)
        return mics_fail(MICS_ERR_INVALID, "%d units gathered ahead: at least 0",
                         (int)choice->prefetch);
    if (choice->layered_micro_steps < 0)
        return mics_fail(MICS_ERR_INVALID, "%d layered micro-steps: at least 1 (0 counts as 1)",
                         (int)choice->layered_micro_steps);
    return MICS_OK;
}

int32_t batch_index(const mics_planner *planner, int64_t micro_batch)
{
    int32_t at = 0;
    while (at + 1 < planner->micro_batch_count && planner->micro_batches[at] != micro_batch)
        at++;
    return at;
}

batch_probe *find_batch(const mics_planner *planner, int64_t micro_batch, mics_recompute recompute)
{
    const int32_t index = batch_index(planner, micro_batch);
    batch_probe *batch =
        planner->micro_batches[index] == micro_batch ? planner->batches[index] : NULL;
    while (batch != NULL && !mics_recompute_is(batch->recompute, recompute))
        batch = batch->next;
    return batch;
}

mics_status open_schedule(mics_planner *planner, const mics_plan_choice *choice,
                          int32_t micro_steps, bool probes, mics_schedule **schedule_out)
{
    const mics_plan_request *request = &planner->request;
    const mics_algorithm ring = MICS_ALGORITHM_RING, two = MICS_ALGORITHM_TWO_STAGE;
    const batch_probe *known = find_batch(planner, choice->micro_batch, choice->recompute);
    mics_schedule_spec spec = {
        .model = request->model,
        .batch = {.sequences = choice->micro_batch * sequences_each(planner),
                  .length = rank_length(planner),
                  .threads = request->threads,
                  .library = request->library},
        .micro_steps = micro_steps,
        .prefetch = choice->prefetch,
        .layered_micro_steps = choice->layered_micro_steps,
        .recompute = choice->recompute,
        .offload_units = choice->offload_units,
        .gather = choice->gather_two_stage ? two : ring,
        .reduce = choice->reduce_two_stage ? two : ring,
        .boundary = choice->boundary_two_stage ? two : ring,
        .param_persistence_threshold = request->param_persistence_threshold,
        .coalesce_below = request->coalesce_below,
        .precision = request->precision,
        .optimizer = request->optimizer,
        .state_dtype = request->state_dtype,
        .rounded_sums = request->rounded_sums && planner->ranks == 1,
        .preference = request->preference,
        .accelerator = request->accelerator,
        .sums_by_ring = choice->sums_by_ring,
        .all_reduces = choice->all_reduces,
        .early_gathers = choice->early_gathers,
        .any_rounding = probes,
        .delta_sync = request->delta_sync,
        .params_dtype = request->params_dtype,
        .grads_dtype = request->grads_dtype,
        .boundary_dtype = request->boundary_dtype,
        .share_params = request->share_params,
        .comm_staging_bytes = request->staging_bytes,
        .node_memory = request->node_memory,
        .outer = planner->request.outer,
        .like = known != NULL && choice->offload_units == 0 ? known->schedule : NULL,
    };
    MICS_TRY(choice_mesh(planner, choice->sharding, &spec.mesh));
    return mics_schedule_open(planner->memory, &spec, schedule_out);
}

// ---- rounding ----

static bool rounds(mics_comm_dtypes dtypes)
{
    return dtypes.intra != MICS_COMM_FP32 || dtypes.inter != MICS_COMM_FP32;
}

bool request_rounds(const mics_plan_request *request)
{
    return rounds(request->boundary_dtype) ||
           (request->precision == MICS_PRECISION_FP32 &&
            (rounds(request->params_dtype) || rounds(request->grads_dtype)));
}

// Whether the boundary may go in one ring: over several nodes of several ranks, with all else in rings too,
// as a run has it.
bool may_ring_boundary(const mics_planner *planner, const mics_plan_space *space,
                       const mics_plan_choice *choice)
{
    return !space->collectives_given && degree_has_stages(planner, planner->ranks) &&
           !choice->gather_two_stage && !request_rounds(&planner->request) &&
           (!choice->reduce_two_stage || sums_directly(planner, choice));
}

bool choice_runs(const mics_planner *planner, const mics_plan_choice *choice)
{
    const mics_sharding *s = &choice->sharding;
    const bool mixed = planner->request.precision == MICS_PRECISION_MIXED;
    const bool hops = s->params < planner->ranks && degree_has_stages(planner, planner->ranks);
    const bool sums = degree_has_stages(planner, s->grads) && !sums_directly(planner, choice);
    const bool gathers = degree_has_stages(planner, s->params) && choice->gather_two_stage;
    const bool rings = (hops && !choice->boundary_two_stage) || (sums && !choice->reduce_two_stage);
    const bool stages =
        gathers || (hops && choice->boundary_two_stage) || (sums && choice->reduce_two_stage);
    return !(rings && stages) && !(mixed && choice->sums_by_ring && s->grads > 1) &&
           !(choice->all_reduces && s->optimizer < planner->ranks);
}

// ---- order ----

int compare_real(double a, double b)
{
    return (a > b) - (a < b);
}

int compare_choices(const mics_plan_choice *a, const mics_plan_choice *b)
{
    const double keys[][2] = {
        {a->sharding.params, b->sharding.params},
        {a->sharding.grads, b->sharding.grads},
        {a->sharding.optimizer, b->sharding.optimizer},
        {a->experts, b->experts},
        {a->sequence, b->sequence},
        {-(double)a->micro_batch, -(double)b->micro_batch},
        {a->recompute.units, b->recompute.units},
        {a->recompute.attention, b->recompute.attention},
        {a->recompute.mlp, b->recompute.mlp},
        {a->recompute.last, b->recompute.last},
        {a->offload_units, b->offload_units},
        {a->prefetch, b->prefetch},
        {a->layered_micro_steps, b->layered_micro_steps},
        {a->gather_two_stage, b->gather_two_stage},
        {a->reduce_two_stage, b->reduce_two_stage},
        {a->early_gathers, b->early_gathers},
        {!a->boundary_two_stage, !b->boundary_two_stage},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        if (keys[i][0] != keys[i][1])
            return compare_real(keys[i][0], keys[i][1]);
    }
    return 0;
}

// ---- spaces ----

int64_t least_replicas(const mics_planner *planner, const mics_plan_space *space)
{
    return space->min_replicas > 0 ? space->min_replicas : planner->request.min_replicas;
}

bool in_space(const mics_planner *planner, const mics_plan_space *space, mics_sharding sharding)
{
    const int32_t n = planner->ranks;
    if (space->params > 0 && space->params != sharding.params)
        return false;
    switch (space->family) {
    case MICS_PLAN_FAMILY_ALL:
        return least_replicas(planner, space) * sharding.optimizer <= n;
    case MICS_PLAN_FAMILY_MICS:
        return sharding.params == sharding.optimizer;
    case MICS_PLAN_FAMILY_MICS_PLUS:
        return sharding.params == sharding.grads && sharding.optimizer == n;
    case MICS_PLAN_FAMILY_HPZ: // whole parameters would be zero2
        return sharding.grads == n && (sharding.params > 1 || n == 1);
    default:
        return true;
    }
}

mics_status check_space(const mics_planner *planner, const mics_plan_space *space, int32_t top)
{
    mics_mesh mesh;
    if (least_replicas(planner, space) > planner->ranks)
        return mics_fail(MICS_ERR_INVALID,
                         "run.min_replicas: %d ranks cannot keep %lld copies of every state; 1 to "
                         "%d work, or more nodes",
                         (int)planner->ranks, (long long)least_replicas(planner, space),
                         (int)planner->ranks);
    if (top < 1)
        return mics_fail(MICS_ERR_INVALID, "%d plans are asked for: at least 1", (int)top);
    if (space->sharding.params > 0)
        return mics_mesh_init(planner->ranks, planner->request.nodes, space->sharding, &mesh);
    return MICS_OK;
}
