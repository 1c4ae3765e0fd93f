// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What plans are compared with: other systems' shardings, each at its best.
#include "plan/search/baseline.h"
#include "plan/search/choice.h"
#include "plan/search/megatron.h"
#include "plan/search/search.h"

// The shardings of a baseline.
static void choose_shardings(mics_plan_baseline baseline, int32_t ranks, mics_plan_space *space)
{
    static const mics_sharding none = {0, 0, 0};
    const mics_sharding fixed[MICS_PLAN_BASELINES] = {
        [MICS_PLAN_DDP] = {1, 1, 1},
        [MICS_PLAN_ZERO1] = {1, 1, ranks},
        [MICS_PLAN_ZERO2] = {1, ranks, ranks},
        [MICS_PLAN_ZERO3] = {ranks, ranks, ranks},
    };
    const mics_plan_family families[MICS_PLAN_BASELINES] = {
        [MICS_PLAN_MICS] = MICS_PLAN_FAMILY_MICS,
        [MICS_PLAN_MICS_PLUS] = MICS_PLAN_FAMILY_MICS_PLUS,
        [MICS_PLAN_HPZ] = MICS_PLAN_FAMILY_HPZ,
    };
    space->params = 0;
    space->experts = space->sequence = 1;
    space->family = families[baseline];
    space->sharding = space->family == MICS_PLAN_FAMILY_ALL ? fixed[baseline] : none;
}

// The paper takes the smallest partition group that fits, and gathers ahead of computation. Where
// no group leaves memory for that, the smallest that fits at all.
static mics_status choose_smallest(mics_planner *planner, double limit_bytes,
                                   mics_plan_space *space, bool *fits_out)
{
    bool fits = false;
    for (int32_t ahead = space->prefetch_given ? 0 : 1; ahead >= 0 && !fits; ahead--) {
        space->prefetch_least = ahead;
        for (int32_t i = 0; i < planner->degree_count && !fits; i++) {
            mics_plan_choice choice = {0};
            double bytes = 0;
            space->params = planner->degrees[i];
            MICS_TRY(least_memory(planner, space, &choice, &bytes));
            fits = bytes <= limit_bytes;
        }
    }
    *fits_out = fits;
    return MICS_OK;
}

// How the systems of those names reduce and gather, one micro-step after the other.
static void choose_collectives(mics_plan_baseline baseline, mics_plan_space *space)
{
    if (baseline != MICS_PLAN_MICS_PLUS)
        space->layered_micro_steps = 1;
    space->collectives_given = baseline != MICS_PLAN_MICS_PLUS;
    space->gather_two_stage = baseline == MICS_PLAN_MICS;
    space->reduce_two_stage = space->boundary_two_stage = false;
    space->all_reduces = baseline != MICS_PLAN_MICS_PLUS;
    space->sums_by_ring =
        space->family != MICS_PLAN_FAMILY_MICS && space->family != MICS_PLAN_FAMILY_MICS_PLUS;
}

static mics_status search_one(mics_planner *planner, const mics_plan_space *space,
                              mics_plan_entry *entry_out)
{
    mics_plan_result *result = NULL;
    MICS_TRY(mics_planner_search(planner, space, 1, &result));
    *entry_out = result->count > 0 ? result->entries[0] : result->nearest;
    mics_plan_result_close(result);
    return MICS_OK;
}

// ---- buckets ----

// Elements of the messages in which layers share a sum of gradients or a gather of parameters:
// Megatron Core's bucket_size of 40 million (distributed_data_parallel_config.py; read 2026-11), and
// DeepSpeed's reduce_bucket_size and allgather_bucket_size of 5e8 (its configuration page).
static const int64_t buckets[] = {40000000, 500000000};

// Whether layers are so small that rings of one layer each would mostly be latency, and what is sent
// once a step would be faster together. Those systems have that choice, so their rows take the best.
static bool shares_buckets(const mics_planner *planner, mics_plan_baseline baseline)
{
    const mics_model *model = planner->request.model;
    const bool once =
        baseline == MICS_PLAN_DDP || baseline == MICS_PLAN_ZERO1 || baseline == MICS_PLAN_ZERO2;
    return once && planner->ranks > 1 &&
           mics_model_trained_count(model) / model->unit_count < buckets[0];
}

static mics_status search_bucket(const mics_planner *planner, const mics_plan_space *space,
                                 int64_t bucket, mics_plan_entry *best)
{
    mics_plan_request request = planner->request;
    mics_planner *other = NULL;
    mics_plan_entry entry;
    request.coalesce_below = bucket;
    MICS_TRY(mics_planner_open(planner->memory, &request, &other));
    const mics_status status = search_one(other, space, &entry);
    mics_planner_close(other);
    MICS_TRY(status);
    entry.runs = false; // with another run.coalesce_below than is asked for
    if (entry.fits &&
        (!best->fits || (entry.tight == best->tight ? entry.step_us < best->step_us : best->tight)))
        *best = entry;
    return MICS_OK;
}

static mics_status search_rounded(mics_planner *planner, const mics_plan_space *space,
                                  mics_plan_baseline baseline, mics_plan_entry *entry_out)
{
    mics_plan_space within = *space;
    mics_plan_entry best;
    choose_shardings(baseline, planner->ranks, &within);
    choose_collectives(baseline, &within);
    within.fitting_only = true;
    bool fits = baseline != MICS_PLAN_MICS;
    if (!fits)
        MICS_TRY(choose_smallest(planner, planner->available_bytes - planner->request.margin_bytes,
                                 &within, &fits));
    if (!fits)
        MICS_TRY(choose_smallest(planner, planner->available_bytes, &within, &fits));
    MICS_TRY(search_one(planner, &within, &best));
    for (size_t i = 0; i < sizeof buckets / sizeof *buckets && shares_buckets(planner, baseline);
         i++)
        MICS_TRY(search_bucket(planner, &within, buckets[i], &best));
    *entry_out = best;
    return MICS_OK;
}

// ---- rounding ----

// Those systems sum in rings, in which each of several ranks on a node would send rounded numbers to
// every other one: so their sums are whole there, and parameters that are whole between nodes are so
// inside them.
static mics_plan_request without_rounding(const mics_planner *planner)
{
    mics_plan_request request = planner->request;
    request.grads_dtype = request.boundary_dtype = mics_comm_dtypes_both(MICS_COMM_FP32);
    request.delta_sync = false;
    if (request.params_dtype.inter == MICS_COMM_FP32)
        request.params_dtype.intra = MICS_COMM_FP32;
    return request;
}

static mics_status search_shardings(mics_planner *planner, const mics_plan_space *space,
                                    mics_plan_baseline baseline, mics_plan_entry *entry_out)
{
    const mics_plan_request request = without_rounding(planner);
    const bool rings = baseline != MICS_PLAN_MICS_PLUS && planner->ranks_per_node > 1 &&
                       planner->ranks > planner->ranks_per_node;
    mics_planner *other = NULL;
    if (!rings || !request_rounds(&planner->request))
        return search_rounded(planner, space, baseline, entry_out);
    MICS_TRY(mics_planner_open(planner->memory, &request, &other));
    const mics_status status = search_rounded(other, space, baseline, entry_out);
    mics_planner_close(other);
    entry_out->runs = false; // with other dtypes
    return status;
}

mics_status mics_planner_baseline(mics_planner *planner, const mics_plan_space *space,
                                  mics_plan_baseline baseline, mics_plan_entry *entry_out)
{
    mics_plan_space within = space != NULL ? *space : (mics_plan_space){0};
    within.offload_given = true;
    mics_plan_entry whole;
    if (baseline != MICS_PLAN_MEGATRON)
        return search_shardings(planner, &within, baseline, entry_out);
    if (!plan_megatron_may_be_whole(planner, &within.pipeline))
        return plan_megatron(planner, &within, NULL, entry_out);
    const bool is_ddp = within.pipeline.era == MICS_MEGATRON_2021;
    const mics_plan_baseline like = is_ddp                                   ? MICS_PLAN_DDP
                                    : rival_software(planner)->shards_params ? MICS_PLAN_ZERO3
                                                                             : MICS_PLAN_ZERO1;
    MICS_TRY(search_shardings(planner, &within, like, &whole));
    return plan_megatron(planner, &within, &whole, entry_out);
}
