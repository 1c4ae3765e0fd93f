// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Plans over several cluster sizes, or over several P.
#include "base/size.h"
#include "mics/log.h"
#include "plan/offers/planning.h"
#include "plan/search/baseline.h"
#include "rivals.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 20 };

// ---- what is asked for ----

static mics_status fail_sweep(const char *text)
{
    return mics_fail(
        MICS_ERR_INVALID,
        "--sweep %s: write nodes=1..64 for powers of two, nodes=2,4,6 for those (at most "
        "%d, up to %d nodes), or P",
        text, (int)MICS_PLAN_MAX_POINTS, (int)MAX_NODES);
}

// Reads a number and moves on; false where there is none in range.
static bool read_number(const char **text, int32_t *value_out)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(*text, &end, 10);
    if (end == *text || errno != 0 || value < 1 || value > MAX_NODES || **text < '0' ||
        **text > '9')
        return false;
    *value_out = (int32_t)value;
    *text = end;
    return true;
}

static bool add_point(mics_plan_sweep *sweep, int32_t size)
{
    if (sweep->point_count == MICS_PLAN_MAX_POINTS)
        return false;
    if (sweep->point_count > 0 && sweep->points[sweep->point_count - 1].size >= size)
        return false; // ascending
    sweep->points[sweep->point_count++] = (mics_plan_point){.size = size};
    return true;
}

// Powers of two from the first to the last; the last counts too.
static bool add_range(mics_plan_sweep *sweep, int32_t first, int32_t last)
{
    bool good = first <= last;
    for (int64_t size = first; good && size <= last; size *= 2) {
        good = add_point(sweep, (int32_t)size);
        if (size < last && 2 * size > last)
            good = good && add_point(sweep, last);
    }
    return good;
}

static mics_status read_nodes(mics_plan_sweep *sweep, const char *text)
{
    const char *at = text + strlen("nodes=");
    int32_t size = 0, last = 0;
    bool good = read_number(&at, &size);
    if (good && strncmp(at, "..", 2) == 0) {
        at += 2;
        good = read_number(&at, &last) && add_range(sweep, size, last);
        return good && *at == '\0' ? MICS_OK : fail_sweep(text);
    }
    good = good && add_point(sweep, size);
    while (good && *at == ',') {
        at++;
        good = read_number(&at, &size) && add_point(sweep, size);
    }
    return good && *at == '\0' ? MICS_OK : fail_sweep(text);
}

static mics_status read_params(const mics_plan *plan, mics_plan_sweep *sweep)
{
    const mics_plan_request request = mics_plan_request_get(plan, plan->nodes);
    int32_t ranks = 0;
    mics_sharding sharding = {1, 1, 1};
    MICS_TRY(mics_cluster_ranks(&request.cluster, request.nodes, &ranks));
    const int64_t least = request.min_replicas; // of every state, so of parameters too
    for (int32_t i = 0; mics_sharding_candidate(ranks, request.nodes, i, &sharding); i++) {
        if (i == 0 || least * sharding.params <= ranks)
            (void)add_point(sweep, sharding.params);
    }
    return MICS_OK;
}

static mics_status read_sweep(const mics_plan *plan, const char *text, mics_plan_sweep *sweep)
{
    if (strcmp(text, "P") == 0) {
        if (offers_fixes_degrees(&plan->pipeline))
            return mics_fail(MICS_ERR_INVALID,
                             "--sweep P has no row of megatron, whose degrees are "
                             "given; leave them out, or give --sweep nodes=1..64");
        static const char *const names[] = {"best", "mics", "mics+", "hpz"};
        sweep->over_params = true;
        sweep->curve_count = sizeof names / sizeof names[0];
        memcpy(sweep->names, names, sizeof names);
        return read_params(plan, sweep);
    }
    if (strncmp(text, "nodes=", 6) != 0)
        return fail_sweep(text);
    sweep->names[sweep->curve_count++] = "best";
    for (int b = 0; b < MICS_PLAN_BASELINES; b++)
        sweep->names[sweep->curve_count++] = mics_plan_baseline_text((mics_plan_baseline)b);
    return read_nodes(sweep, text);
}

// ---- points ----

static void take_curve(mics_plan_point *point, int32_t curve, const mics_plan_entry *entry)
{
    point->curves[curve] = *entry;
    point->has[curve] = entry->fits && entry->step_us > 0;
}

// A size that the cluster does not have is a gap in the curve.
static bool is_gap(const mics_plan *plan, mics_plan_point *point)
{
    const bool muted = mics_log_mute(true);
    const mics_status status = mics_cluster_ranks(&plan->cluster, point->nodes, &point->ranks);
    (void)mics_log_mute(muted);
    point->global_batch = mics_plan_request_get(plan, point->nodes).global_batch;
    const int32_t least = plan->run->min_replicas;
    if (status != MICS_OK)
        snprintf(point->note, sizeof point->note, "the cluster has fewer than %d nodes",
                 (int)point->nodes);
    else if (least > point->ranks)
        snprintf(point->note, sizeof point->note,
                 "%d ranks cannot keep run.min_replicas %d copies of every state",
                 (int)point->ranks, (int)least);
    return point->note[0] != '\0';
}

static void note_missing(mics_plan_point *point, const mics_plan_entry *nearest)
{
    char missing[32];
    snprintf(point->note, sizeof point->note, "nothing fits: %s lacks the least, %s a rank",
             nearest->name, mics_size_text(-nearest->spare_bytes, missing, sizeof missing));
}

static mics_status plan_nodes(const mics_plan *plan, mics_plan_point *point)
{
    mics_plan_found found = {0};
    point->nodes = point->size;
    if (is_gap(plan, point))
        return MICS_OK;
    mics_status status = mics_plan_find(plan, point->nodes, 0, &found);
    if (status == MICS_OK && found.result->count == 0) {
        status = offers_note_nothing(plan, &found, point->note, sizeof point->note);
        take_curve(point, 1 + MICS_PLAN_MEGATRON, &found.baselines[MICS_PLAN_MEGATRON]);
    } else if (status == MICS_OK) {
        take_curve(point, 0, &found.result->entries[0]);
        for (int b = 0; b < MICS_PLAN_BASELINES; b++)
            take_curve(point, 1 + b, &found.baselines[b]);
    }
    mics_plan_found_close(&found);
    return status;
}

// Rows that mics runs are plans too.
static mics_status search_curve(mics_planner *planner, const mics_plan_space *space,
                                mics_plan_result *best, mics_plan_point *point, int32_t curve)
{
    mics_plan_result *result = NULL;
    MICS_TRY(mics_planner_search(planner, space, 1, &result));
    mics_plan_entry *entry = result->count > 0 ? &result->entries[0] : &result->nearest;
    mics_plan_explain(planner, NULL, entry);
    take_curve(point, curve, entry);
    const mics_status status = mics_planner_merge(planner, entry, best);
    mics_plan_result_close(result);
    return status;
}

// Beside the plans of any P.
static mics_status search_params(const mics_plan_found *whole, mics_plan_point *point)
{
    mics_planner *planner = whole->planner;
    const int32_t p = point->size, n = point->ranks;
    mics_plan_result *best = NULL;
    const mics_plan_space spaces[] = {
        {.params = p},
        {.sharding = {p, p, p}, .collectives_given = true, .gather_two_stage = true},
        {.sharding = {p, p, n}},
        {.sharding = {p, n, n}, .collectives_given = true},
    };
    MICS_TRY(mics_planner_search(planner, &spaces[0], 1, &best));
    const mics_plan_result *all = whole->result;
    mics_status status = MICS_OK;
    for (int32_t c = 1; status == MICS_OK && c < 4; c++)
        status = search_curve(planner, &spaces[c], best, point, c);
    if (status == MICS_OK && all != NULL && all->count > 0 &&
        all->entries[0].choice.sharding.params == p)
        status = mics_planner_merge(planner, &all->entries[0], best);
    mics_plan_entry *entry = best->count > 0 ? &best->entries[0] : &best->nearest;
    mics_plan_explain(planner, NULL, entry);
    take_curve(point, 0, entry);
    mics_plan_result_close(best);
    return status;
}

static mics_status plan_params(const mics_plan *plan, const mics_plan_found *whole,
                               mics_plan_point *point)
{
    point->nodes = plan->nodes;
    point->ranks = mics_planner_ranks(whole->planner);
    point->global_batch = mics_plan_request_get(plan, plan->nodes).global_batch;
    MICS_TRY(search_params(whole, point));
    if (!point->has[0])
        note_missing(point, &point->curves[0]);
    return MICS_OK;
}

// ---- the whole ----

static mics_status fail_empty(const mics_plan *plan, const mics_plan_sweep *sweep)
{
    const mics_plan_point *last = &sweep->points[sweep->point_count - 1];
    return mics_fail(MICS_ERR_INVALID,
                     "%s on %s: no point of the sweep can be planned; the last: %s",
                     plan->run->model_config, plan->cluster.name, last->note);
}

static mics_status run_sweep(const mics_plan *plan, mics_plan_sweep *sweep)
{
    bool any = false;
    mics_plan_found whole = {0}; // of any P
    mics_status status = MICS_OK;
    if (sweep->over_params)
        status = mics_plan_find(plan, plan->nodes, 0, &whole);
    for (int32_t i = 0; status == MICS_OK && i < sweep->point_count; i++) {
        mics_plan_point *point = &sweep->points[i];
        status = sweep->over_params ? plan_params(plan, &whole, point) : plan_nodes(plan, point);
        any = any || point->has[0];
        mics_work_tell(&plan->listener, "planning", i + 1, sweep->point_count);
    }
    mics_plan_found_close(&whole);
    MICS_TRY(status);
    return any ? MICS_OK : fail_empty(plan, sweep);
}

mics_status mics_plan_sweep_open(const mics_plan *plan, const char *points,
                                 mics_plan_sweep **sweep_out)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(plan->memory, MICS_MEM_HOST, sizeof(mics_plan_sweep), &block));
    mics_plan_sweep *sweep = block;
    sweep->memory = plan->memory;
    mics_status status = read_sweep(plan, points, sweep);
    if (status == MICS_OK)
        status = run_sweep(plan, sweep);
    if (status == MICS_OK)
        *sweep_out = sweep;
    else
        mics_plan_sweep_close(sweep);
    return status;
}

void mics_plan_sweep_close(mics_plan_sweep *sweep)
{
    if (sweep != NULL)
        mics_free(sweep->memory, sweep);
}
