// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Local steps beside synchronous plans: on which islands, how often they meet, up to which network
// they pay.
#include "mics/log.h"
#include "plan/search/baseline.h"
#include "plan/search/choice.h"
#include "plan/search/planner.h"
#include <math.h>

// Of a step that meetings may add; how many times as fast as synchronous plans pays.
static const double max_added = 0.03, least_speedup = 1.05;

static bool adds_much(const mics_plan_entry *entry)
{
    return entry->meeting_us > max_added * entry->step_us;
}

// The entry's choice as requested, or the best of a space.
static mics_status plan_request(mics_memory *memory, const mics_plan_request *request,
                                const mics_plan_space *space, mics_plan_entry *entry_io)
{
    mics_planner *planner = NULL;
    mics_plan_result *result = NULL;
    mics_status status = MICS_OK;
    MICS_TRY(mics_planner_open(memory, request, &planner));
    if (space != NULL)
        status = mics_planner_search(planner, space, 1, &result);
    else
        status = mics_planner_evaluate(planner, &entry_io->choice, entry_io);
    if (result != NULL)
        *entry_io = result->count > 0 ? result->entries[0] : result->nearest;
    mics_plan_result_close(result);
    mics_planner_close(planner);
    return status;
}

// As they meet all at once in fp32, which takes the most memory.
static mics_status find_islands(const mics_planner *planner, const mics_plan_choice *like,
                                mics_plan_entry *entry_out)
{
    const mics_plan_space space = {.experts = like->experts > 1 ? like->experts : 1,
                                   .sequence = like->sequence > 1 ? like->sequence : 1,
                                   .fitting_only = true};
    const int32_t per_node = planner->ranks_per_node;
    mics_plan_request request = planner->request;
    request.outer = (mics_outer){.every = 1, .fragments = 1};
    for (int32_t ranks = per_node; ranks < planner->world && !entry_out->fits; ranks += per_node) {
        request.outer_ranks = ranks;
        if (planner->world % ranks == 0 && ranks % space.experts == 0 &&
            ranks >= request.min_replicas)
            MICS_TRY(plan_request(planner->memory, &request, &space, entry_out));
    }
    return MICS_OK;
}

// The widest dtype whose meetings at most a period's steps hide.
static mics_status choose_meeting(const mics_planner *planner, const mics_plan_entry *like,
                                  int32_t every, mics_plan_entry *entry_out)
{
    mics_plan_request request = planner->request;
    bool much = true;
    request.outer_ranks = like->outer_ranks;
    for (int dtype = MICS_COMM_FP32; dtype <= MICS_COMM_INT4 && much; dtype++) {
        mics_plan_entry e = *like;
        request.outer =
            (mics_outer){.every = every, .fragments = 1, .dtype = (mics_comm_dtype)dtype};
        MICS_TRY(plan_request(planner->memory, &request, NULL, &e));
        if (adds_much(&e)) { // half as many steps again as it takes: streams share links
            const double steps = every * e.meeting_us / (e.step_us - e.meeting_us);
            request.outer.overlap_steps = (int32_t)fmin(every, ceil(1.5 * steps));
            MICS_TRY(plan_request(planner->memory, &request, NULL, &e));
        }
        if (dtype == MICS_COMM_FP32 || e.fits)
            *entry_out = e;
        much = adds_much(&e);
    }
    return MICS_OK;
}

// All links beyond the node alike.
static void set_speed(mics_cluster *cluster, double gbit_per_s)
{
    const double times = gbit_per_s * 125e6 / cluster->tiers[cluster->node_tier + 1].bytes_per_s;
    for (int32_t t = cluster->node_tier + 1; t < cluster->tier_count; t++) {
        mics_tier *tier = &cluster->tiers[t];
        tier->bytes_per_s *= times;
        tier->rank_bytes_per_s *= times;
        for (int32_t i = 0; i < MICS_CURVE_POINTS; i++) {
            tier->ramp.value[i] *= times;
            tier->reduce_ramp.value[i] *= times;
        }
    }
}

// The fastest network on which they pay: the faster it is, the less they gain.
static mics_status find_network(const mics_planner *planner, const mics_plan_entry *local,
                                double *gbit_per_s_out)
{
    static const double speeds[] = {0,  0.1, 0.25, 0.5, 1,   2.5, 5,    10,
                                    25, 50,  100,  200, 400, 800, 1600, 3200};
    const mics_plan_space space = {.fitting_only = true};
    int low = 0, high = sizeof speeds / sizeof speeds[0];
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        mics_plan_request request = planner->request;
        mics_plan_entry synchronous = {.fits = false}, islands = *local;
        set_speed(&request.cluster, speeds[middle]);
        MICS_TRY(plan_request(planner->memory, &request, &space, &synchronous));
        request.outer = local->outer;
        request.outer_ranks = local->outer_ranks;
        MICS_TRY(plan_request(planner->memory, &request, NULL, &islands));
        *(synchronous.step_us >= least_speedup * islands.step_us ? &low : &high) = middle;
    }
    *gbit_per_s_out = speeds[low];
    return MICS_OK;
}

mics_status mics_planner_local(const mics_planner *planner, const mics_plan_choice *like,
                               mics_plan_local *local_out)
{
    static const int32_t periods[MICS_PLAN_PERIODS] = {10, 30, 100};
    const mics_plan_request *request = &planner->request;
    const bool pairs = request->preference.kind != MICS_PREFERENCE_NONE;
    mics_plan_entry best = {.fits = false};
    *local_out = (mics_plan_local){.asked = true};
    if (request->nodes == 1 || request->math == MICS_MATH_FP16 || pairs)
        return mics_fail(MICS_ERR_UNSUPPORTED,
                         "local steps are of several nodes, in bf16 or fp32, and not of pairs; "
                         "these plans are of %d node%s, in %s%s",
                         (int)request->nodes, request->nodes == 1 ? "" : "s",
                         mics_math_text(request->math), pairs ? ", of pairs" : "");
    MICS_TRY(find_islands(planner, like, &best));
    for (int i = 0; best.fits && i < MICS_PLAN_PERIODS; i++) {
        MICS_TRY(choose_meeting(planner, &best, periods[i], &local_out->entries[i]));
        mics_plan_explain(planner, NULL, &local_out->entries[i]);
        local_out->count++;
    }
    if (!best.fits)
        return MICS_OK;
    while (local_out->take < MICS_PLAN_PERIODS - 1 &&
           adds_much(&local_out->entries[local_out->take]))
        local_out->take++;
    return find_network(planner, &local_out->entries[local_out->take], &local_out->gbit_per_s);
}
