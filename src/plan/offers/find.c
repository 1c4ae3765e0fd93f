// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Runs the planner for one cluster size: the best plans, the baselines, and what the run file
// itself says.
#include "base/size.h"
#include "mics/builder.h"
#include "mics/log.h"
#include "pick.h"
#include "plan/offers/planning.h"
#include "plan/search/baseline.h"
#include "plan/search/estimate.h"
#include "rivals.h"
#include <math.h>
#include <stdio.h>

enum { MAX_NODES_TRIED = 1 << 13 };

// ---- what the run file says ----

// With an automatic prefetch the deepest that fits, as in training.
static mics_status evaluate_choice(const mics_run *run, mics_planner *planner,
                                   mics_plan_choice choice, mics_plan_entry *entry_out)
{
    mics_status status = MICS_OK;
    entry_out->fits = false;
    for (int32_t index = 0; status == MICS_OK && !entry_out->fits; index++) {
        if (run->prefetch_auto && !mics_prefetch_candidate(index, &choice.prefetch))
            break;
        status = mics_planner_evaluate(planner, &choice, entry_out);
        if (!run->prefetch_auto)
            break;
    }
    return status;
}

// What the file leaves open, as a training there would choose it.
static mics_status choose_open(const mics_run *run, mics_plan_found *found,
                               mics_plan_choice *choice)
{
    mics_plan_result *result = NULL;
    if (!offers_is_open(run))
        return MICS_OK;
    MICS_TRY(offers_search(found->planner, run, 0, &result));
    const mics_plan_choice *chosen = &offers_pick(result)->choice;
    choice->sharding = chosen->sharding;
    choice->experts = chosen->experts;
    choice->micro_batch = chosen->micro_batch;
    choice->micro_steps = chosen->micro_steps;
    choice->recompute = chosen->recompute;
    choice->offload_units = chosen->offload_units;
    if (run->early_gathers_auto)
        choice->early_gathers = chosen->early_gathers;
    mics_plan_result_close(result);
    return MICS_OK;
}

// Whether the run file's sharding and batch can be honoured there; then they are evaluated. What
// cannot is no error: the planner is asked for something else.
static bool evaluate_file(const mics_plan *plan, int32_t nodes, mics_plan_found *found)
{
    const mics_run *run = plan->run;
    const bool muted = mics_log_mute(true);
    mics_plan_request request = mics_plan_request_get(plan, nodes);
    mics_planner *islands = NULL; // of local steps
    mics_status status = mics_run_resolve(plan->run, mics_planner_ranks(found->planner), nodes);
    request.outer = run->outer;
    request.outer_ranks = run->outer_ranks;
    if (status == MICS_OK && request.outer_ranks > 0)
        status = mics_planner_open(plan->memory, &request, &islands);
    if (status == MICS_OK) {
        mics_planner *planner = islands != NULL ? islands : found->planner;
        const bool two = run->collectives != MICS_COLLECTIVES_RING;
        mics_plan_choice choice = {
            .sharding = run->sharding,
            .experts = run->experts,
            .sequence = run->sequence,
            .micro_batch = run->micro_batch,
            .micro_steps = run->micro_steps,
            .prefetch = run->prefetch,
            .layered_micro_steps = run->layered_micro_steps,
            .recompute = run->recompute,
            .offload_units = run->offload_units,
            .gather_two_stage = two && run->collectives != MICS_COLLECTIVES_RING_GATHERS,
            .reduce_two_stage = two,
            .boundary_two_stage = two,
        };
        choice.early_gathers =
            mics_planner_gathers_early(planner, &choice, run->early_gathers_auto) &&
            (run->early_gathers_auto || run->early_gathers);
        status = choose_open(run, found, &choice);
        if (status == MICS_OK && run->layered_auto)
            status = mics_planner_layered(planner, &choice, &choice.layered_micro_steps);
        if (status == MICS_OK)
            status = evaluate_choice(run, islands != NULL ? islands : found->rivals, choice,
                                     &found->file);
    }
    mics_planner_close(islands);
    (void)mics_log_mute(muted);
    return status == MICS_OK;
}

// ---- every state twice ----

static bool keeps_twice(const mics_planner *planner, const mics_plan_entry *entry)
{
    return mics_planner_ranks(planner) / entry->choice.sharding.optimizer > 1;
}

// ---- plans ----

static void explain_all(mics_plan_found *found)
{
    mics_plan_result *result = found->result;
    const mics_plan_entry *best = result->count > 0 ? &result->entries[0] : NULL;
    for (int32_t i = 0; i < result->count; i++)
        mics_plan_explain(found->planner, best, &result->entries[i]);
    for (int b = 0; b < MICS_PLAN_BASELINES; b++)
        mics_plan_explain(found->planner, best, &found->baselines[b]);
    if (result->has_faster)
        mics_plan_explain(found->planner, best, &result->faster);
    if (found->has_file)
        mics_plan_explain(found->planner, best, &found->file);
}

// Rivals' rows have a planner of their own where they have software of their own.
static mics_status open_planners(const mics_plan *plan, int32_t nodes, mics_plan_found *found)
{
    const int32_t ranks = nodes * mics_cluster_ranks_per_node(&plan->cluster);
    const bool muted =
        mics_log_mute(true); // what is wrong with the file, the planner need not heed
    const bool resolves = mics_run_resolve(plan->run, ranks, nodes) == MICS_OK;
    (void)mics_log_mute(muted);
    mics_plan_request own = mics_plan_request_get(plan, nodes);
    mics_plan_request rivals = mics_plan_rivals_get(plan, nodes);
    own.micro_batch = rivals.micro_batch = resolves ? plan->run->micro_batch : 0;
    MICS_TRY(mics_planner_open(plan->memory, &own, &found->planner));
    found->rivals = found->planner;
    return plan->software != NULL ? mics_planner_open(plan->memory, &rivals, &found->rivals)
                                  : MICS_OK;
}

static bool is_rival(mics_plan_baseline baseline)
{
    return baseline != MICS_PLAN_MICS && baseline != MICS_PLAN_MICS_PLUS;
}

// What the run file says may be better than what is searched, as on any of its axes it may say more.
static mics_status merge_file(mics_plan_found *found)
{
    mics_plan_entry own = found->file;
    if (found->rivals != found->planner && own.outer.every == 0)
        MICS_TRY(mics_planner_evaluate(found->planner, &own.choice, &own));
    return mics_planner_merge(found->planner, &own, found->result);
}

mics_status mics_plan_find(const mics_plan *plan, int32_t nodes, int32_t top,
                           mics_plan_found *found)
{
    MICS_TRY(open_planners(plan, nodes, found));
    const mics_plan_space space = {.fitting_only = top == 0};
    MICS_TRY(mics_planner_search(found->planner, &space, top > 0 ? top : 1, &found->result));
    found->has_file = !plan->bare && evaluate_file(plan, nodes, found);
    if (found->has_file)
        MICS_TRY(merge_file(found));
    if (found->result->count == 0)
        return MICS_OK;
    MICS_TRY(offers_find_megatron(plan, found));
    for (int b = 0; b < MICS_PLAN_MEGATRON; b++) {
        mics_planner *planner = is_rival((mics_plan_baseline)b) ? found->rivals : found->planner;
        MICS_TRY(mics_planner_baseline(planner, NULL, (mics_plan_baseline)b, &found->baselines[b]));
        if (planner == found->planner)
            MICS_TRY(mics_planner_merge(planner, &found->baselines[b], found->result));
    }
    explain_all(found);
    offers_explain_rivals(plan, found);
    return MICS_OK;
}

void mics_plan_found_close(mics_plan_found *found)
{
    mics_plan_result_close(found->result);
    if (found->rivals != found->planner)
        mics_planner_close(found->rivals);
    mics_planner_close(found->planner);
    *found = (mics_plan_found){.planner = NULL};
}

// One of the best, or searched for.
mics_status mics_plan_find_twice(mics_plan_found *found)
{
    const mics_plan_space space = {.min_replicas = 2, .fitting_only = true};
    mics_plan_result *searched = NULL;
    const mics_plan_result *result = found->result;
    int32_t at = 0;
    found->has_twice = false;
    if (result == NULL || result->count == 0 || mics_planner_ranks(found->planner) < 2 ||
        keeps_twice(found->planner, &result->entries[0]))
        return MICS_OK;
    while (at < result->count && !keeps_twice(found->planner, &result->entries[at]))
        at++;
    if (at == result->count) {
        MICS_TRY(mics_planner_search(found->planner, &space, 1, &searched));
        result = searched;
        at = 0;
    }
    found->has_twice = at < result->count;
    if (found->has_twice) {
        found->twice = result->entries[at];
        mics_plan_explain(found->planner, &found->result->entries[0], &found->twice);
    }
    mics_plan_result_close(searched);
    return MICS_OK;
}

// What differs then is how another system's collectives are made.
static bool same_choice(const mics_plan_entry *left, const mics_plan_entry *right)
{
    const mics_plan_choice *a = &left->choice, *b = &right->choice;
    return a->sharding.params == b->sharding.params && a->sharding.grads == b->sharding.grads &&
           a->sharding.optimizer == b->sharding.optimizer && a->experts == b->experts &&
           a->micro_batch == b->micro_batch && a->micro_steps == b->micro_steps &&
           mics_recompute_is(a->recompute, b->recompute) && a->offload_units == b->offload_units;
}

const mics_plan_entry *mics_plan_faster_baseline(const mics_plan_found *found)
{
    const mics_plan_entry *fastest = NULL;
    double below_us = found->result->entries[0].step_us / 1.01;
    for (int b = 0; b < MICS_PLAN_BASELINES; b++) {
        const mics_plan_entry *entry = &found->baselines[b];
        if (entry->choice.micro_batch == 0 || !entry->fits || entry->step_us >= below_us ||
            (entry->tight && !found->result->entries[0].tight) ||
            (b != MICS_PLAN_MEGATRON && same_choice(entry, &found->result->entries[0])))
            continue;
        fastest = entry;
        below_us = entry->step_us;
    }
    return fastest;
}

// ---- nothing fits ----

// Of a mixture with any experts a rank; with as many ranks a sequence as there may be.
static mics_status least_of_experts(const mics_plan *plan, mics_planner *planner,
                                    mics_plan_choice choice, double *bytes_out)
{
    MICS_TRY(mics_planner_memory(planner, &choice, bytes_out));
    for (int32_t e = 2; e <= plan->experts; e++) {
        double bytes = 0;
        choice.experts = e;
        if (plan->experts % e == 0 && choice.sharding.params % e == 0 &&
            mics_model_can_spread(plan->model, e) &&
            mics_planner_memory(planner, &choice, &bytes) == MICS_OK && bytes < *bytes_out)
            *bytes_out = bytes;
    }
    choice.experts = 1;
    for (int32_t s = 2; s <= mics_cluster_ranks_per_node(&plan->cluster); s++) {
        double bytes = 0;
        choice.sequence = choice.micro_steps = s; // of as many sequences as ranks
        if (mics_model_can_cut_sequences(plan->model, s) &&
            mics_planner_memory(planner, &choice, &bytes) == MICS_OK && bytes < *bytes_out)
            *bytes_out = bytes;
    }
    return MICS_OK;
}

// Least memory a rank on so many nodes: everything over as many ranks as leave so many replicas,
// one sequence, recomputed.
static mics_status least_bytes(const mics_plan *plan, int32_t nodes, int32_t replicas,
                               double *bytes_out, double *available_out)
{
    mics_plan_request request = mics_plan_request_get(plan, nodes);
    mics_planner *planner = NULL;
    int32_t ranks = 0;
    MICS_TRY(mics_cluster_ranks(&plan->cluster, nodes, &ranks));
    while (replicas < ranks && ranks % replicas != 0)
        replicas++;
    const int32_t p = replicas < ranks ? ranks / replicas : 1;
    const mics_plan_choice choice = {.sharding = {p, p, p},
                                     .micro_batch = 1,
                                     .micro_steps = 1,
                                     .recompute = mics_recompute_all(true)};
    request.global_batch = ranks;
    MICS_TRY(mics_planner_open(plan->memory, &request, &planner));
    const mics_status status = least_of_experts(plan, planner, choice, bytes_out);
    *available_out = mics_planner_memory_bytes(planner);
    mics_planner_close(planner);
    return status;
}

// The smallest doubling of the nodes on which it fits; 0: none.
static int32_t nodes_that_fit(const mics_plan *plan, int32_t nodes)
{
    const bool muted = mics_log_mute(true);
    int32_t fitting = 0;
    for (int64_t more = 2 * (int64_t)nodes; fitting == 0 && more <= MAX_NODES_TRIED; more *= 2) {
        double bytes = 0, available = 0;
        if (least_bytes(plan, (int32_t)more, plan->run->min_replicas, &bytes, &available) !=
            MICS_OK)
            break;
        if (bytes <= available)
            fitting = (int32_t)more;
    }
    (void)mics_log_mute(muted);
    return fitting;
}

// Whether it would fit on these nodes if every state were kept once.
static bool fits_once(const mics_plan *plan, int32_t nodes)
{
    double bytes = 0, available = 0;
    const bool muted = mics_log_mute(true);
    const mics_status status = least_bytes(plan, nodes, 1, &bytes, &available);
    (void)mics_log_mute(muted);
    return plan->run->min_replicas > 1 && status == MICS_OK && bytes <= available;
}

mics_status mics_plan_fail_fit(const mics_plan *plan, const mics_plan_found *found)
{
    const mics_plan_entry *nearest = &found->result->nearest;
    char needed[32], there[32], advice[160];
    const double available = mics_planner_memory_bytes(found->planner);
    const int32_t nodes =
        mics_planner_ranks(found->planner) / mics_cluster_ranks_per_node(&plan->cluster);
    const int32_t fitting = nodes_that_fit(plan, nodes);
    if (fits_once(plan, nodes))
        snprintf(advice, sizeof advice, "run.min_replicas 1 would do (it is %d)",
                 (int)plan->run->min_replicas);
    else if (fitting > 0)
        snprintf(advice, sizeof advice, "%d such nodes would do (with a batch of at least %lld)",
                 (int)fitting, (long long)fitting * mics_cluster_ranks_per_node(&plan->cluster));
    else
        snprintf(advice, sizeof advice,
                 "no number of such nodes would do: take shorter sequences, a smaller model or "
                 "accelerators with more memory");
    char rival[128];
    offers_rival_text(plan, found, rival, sizeof rival);
    return mics_fail(
        MICS_ERR_MEMORY,
        "%s fits nowhere on %d node%s of %s: what takes the least, %s with micro-batch "
        "%lld%s, needs %s a rank, and there is %s; %s%s",
        plan->run->model_config, (int)nodes, nodes == 1 ? "" : "s", plan->cluster.name,
        nearest->name, (long long)nearest->choice.micro_batch,
        mics_recomputes(nearest->choice.recompute) ? ", recomputed" : "",
        mics_size_text((double)nearest->memory.total, needed, sizeof needed),
        mics_size_text(available, there, sizeof there), advice, rival);
}
