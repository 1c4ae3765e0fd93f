// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The search: of the space, what fits is simulated in the order of its bounds until no bound is below
// what was found.
// Plans leave the request's margin free. Where nothing does, a second search takes what fits at all.
#include "plan/search/search.h"
#include "base/free.h"
#include "mics/log.h"
#include "plan/search/choice.h"
#include "plan/search/evaluate.h"
#include "plan/search/planner.h"
#include <math.h>
#include <stdlib.h>

enum { FASTER_TRIED = 8 };

// ---- order ----

static int compare_times(const found *a, const found *b)
{
    return compare_real(round(a->step_us * 1e3), round(b->step_us * 1e3)); // whole ns
}

// Of shardings that are equally fast.
static int compare_ties(const found *a, const found *b)
{
    if (a->inter_bytes != b->inter_bytes)
        return compare_real(a->inter_bytes, b->inter_bytes);
    return a->memory_bytes != b->memory_bytes ? compare_real(a->memory_bytes, b->memory_bytes)
                                              : compare_choices(&a->choice, &b->choice);
}

static int compare_candidates(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    const int by_bound = compare_real(a->bound_us, b->bound_us);
    return by_bound != 0 ? by_bound : compare_choices(&a->choice, &b->choice);
}

// ---- simulation, best bound first ----

// Bytes are counted where times tie, which is seldom.
static mics_status count_inter_bytes(search *s, found *f)
{
    mics_plan_entry entry;
    if (f->inter_bytes >= 0)
        return MICS_OK;
    MICS_TRY(mics_planner_evaluate(s->planner, &f->choice, &entry));
    f->inter_bytes = (double)entry.sent.inter;
    return MICS_OK;
}

// Below 0: `a` is better.
static mics_status compare_found(search *s, found *a, found *b, int *order_out)
{
    *order_out = compare_times(a, b);
    if (*order_out != 0)
        return MICS_OK;
    MICS_TRY(count_inter_bytes(s, a));
    MICS_TRY(count_inter_bytes(s, b));
    *order_out = compare_ties(a, b);
    return MICS_OK;
}

static mics_status insert_found(search *s, found f)
{
    int32_t at = index_of_sharding(s, &f.choice);
    const bool full = at == s->found_count && s->found_count == s->max_found;
    int order = 1;
    if (full)
        at--; // the last gives way
    if (full || at < s->found_count)
        MICS_TRY(compare_found(s, &s->found[at], &f, &order));
    if (order <= 0)
        return MICS_OK;
    if (at == s->found_count)
        s->found_count++;
    s->found[at] = f;
    for (; at > 0; at--) {
        MICS_TRY(compare_found(s, &s->found[at - 1], &s->found[at], &order));
        if (order <= 0)
            break;
        const found worse = s->found[at - 1];
        s->found[at - 1] = s->found[at];
        s->found[at] = worse;
    }
    return MICS_OK;
}

static mics_status try_choice(search *s, const mics_plan_choice *choice, double *bytes_out)
{
    found f = {.choice = *choice};
    const batch_probe *probe = NULL;
    mics_memory_ledger ledger;
    mics_planner *of = NULL;
    MICS_TRY(planner_of(s->planner, choice->experts, choice->sequence, &of));
    MICS_TRY(probe_batch(of, choice, &probe));
    MICS_TRY(time_choice(of, choice, &f.step_us, &f.inter_bytes, &ledger));
    s->simulated++;
    *bytes_out = f.memory_bytes = (double)ledger.total;
    return search_fits(s, f.memory_bytes) ? insert_found(s, f) : MICS_OK;
}

// Message buffers are in the ledger alone. What just fits without them takes more recomputation, or
// more units in host memory.
static mics_status simulate_choice(search *s, candidate *c)
{
    mics_recompute forms[MAX_FORMS];
    mics_plan_choice as = c->choice;
    double bytes = 0, us = 0;
    int32_t count = 0;
    bool again = false;
    MICS_TRY(try_choice(s, &as, &bytes));
    c->unseen_bytes += bytes - c->memory_bytes;
    c->memory_bytes = bytes;
    if (search_fits(s, bytes))
        return MICS_OK;
    if (as.offload_units > 0 && !s->space->offload_given) {
        candidate more = *c;
        MICS_TRY(choose_offload(s->planner, &more, &us, &again));
        return again ? try_choice(s, &more.choice, &bytes) : MICS_OK;
    }
    if (!s->space->recompute_given)
        MICS_TRY(smaller_forms(s->planner, &as, bytes, forms, &count));
    for (int32_t i = 0; i < count; i++) {
        as.recompute = forms[i];
        MICS_TRY(try_choice(s, &as, &bytes));
    }
    return MICS_OK;
}

// Those from one on.
static mics_status simulate_candidates(search *s, int32_t from, double worth)
{
    if (s->count > from)
        qsort(s->candidates + from, (size_t)(s->count - from), sizeof(candidate),
              compare_candidates);
    for (int32_t i = from; i < s->count; i++) {
        candidate *c = &s->candidates[i];
        if (search_fits(s, c->memory_bytes) && !is_cut(s, &c->choice, c->bound_us, worth))
            MICS_TRY(simulate_choice(s, c));
    }
    return MICS_OK;
}

// ---- results ----

static int compare_memory(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    const int by_memory = compare_real(a->memory_bytes, b->memory_bytes);
    return by_memory != 0 ? by_memory : compare_candidates(left, right);
}

// Of what does not fit and is clearly faster than the winner, what lacks the least: of those that
// could be by their bounds a few are simulated.
static mics_status find_faster(search *s, mics_plan_result *result)
{
    const double worth_us = 0.99 * s->found[0].step_us;
    int32_t count = 0;
    for (int32_t i = 0; i < s->count; i++) {
        if (s->candidates[i].memory_bytes > s->planner->available_bytes &&
            s->candidates[i].bound_us < worth_us)
            s->candidates[count++] = s->candidates[i];
    }
    if (count > 0)
        qsort(s->candidates, (size_t)count, sizeof(candidate), compare_memory);
    for (int32_t i = 0; i < count && i < FASTER_TRIED && !result->has_faster; i++) {
        MICS_TRY(mics_planner_evaluate(s->planner, &s->candidates[i].choice, &result->faster));
        result->has_faster = result->faster.step_us < worth_us && !result->faster.fits;
    }
    return MICS_OK;
}

static mics_status fill_entries(search *s, mics_plan_result *result)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(result->memory, MICS_MEM_HOST,
                        (size_t)result->capacity * sizeof(mics_plan_entry), &block));
    result->entries = block;
    result->count = s->found_count < result->capacity ? s->found_count : result->capacity;
    for (int32_t i = 0; i < result->count; i++)
        MICS_TRY(mics_planner_evaluate(s->planner, &s->found[i].choice, &result->entries[i]));
    if (result->count == 0)
        return mics_planner_evaluate(s->planner, &s->smallest.choice, &result->nearest);
    return s->space->fitting_only ? MICS_OK : find_faster(s, result);
}

static mics_status open_search(search *s)
{
    void *block = NULL;
    MICS_TRY(mics_alloc(s->planner->memory, MICS_MEM_HOST,
                        (size_t)s->planner->request.model->unit_count * sizeof(class_cost),
                        &block));
    s->classes = block;
    MICS_TRY(mics_alloc(s->planner->memory, MICS_MEM_HOST, (size_t)s->max_found * sizeof(found),
                        &block));
    s->found = block;
    return MICS_OK;
}

static void close_search(search *s)
{
    MICS_FREE_ALL(s->planner->memory, s->classes, s->found, s->candidates);
}

// Why nothing was listed.
static mics_status fail_empty(const search *s)
{
    const mics_planner *planner = s->planner;
    double unseen_bytes = 0;
    if (s->refused_at != NULL)
        return probe_rounding(s->refused_at, &s->refused, &unseen_bytes);
    if (s->space->experts > 1)
        return mics_fail(MICS_ERR_INVALID,
                         "there is nothing to choose from: %d ranks cannot keep different experts "
                         "of this model, batch and ranks; 1 works",
                         (int)s->space->experts);
    return mics_fail(MICS_ERR_INVALID,
                     "there is nothing to choose from: micro-batch %lld does not divide a rank's "
                     "share of the global batch, %lld sequences",
                     (long long)s->space->micro_batch, (long long)rank_share(planner));
}

// What fits under planner->limit_bytes.
static mics_status search_below_limit(mics_planner *planner, const mics_plan_space *space,
                                      int32_t top, mics_plan_result **result_out)
{
    search s = {.planner = planner, .space = space, .max_found = top};
    mics_plan_result *result = NULL;
    mics_status status = MICS_OK;
    void *block = NULL;
    if (may_offload(&s) && top < OFFLOAD_BASES) // so the best is the same whatever `top` is
        s.max_found = OFFLOAD_BASES;
    MICS_TRY_OUT(mics_alloc(planner->memory, MICS_MEM_HOST, sizeof(mics_plan_result), &block));
    result = block;
    result->memory = planner->memory;
    result->capacity = top;
    MICS_TRY_OUT(open_search(&s));
    MICS_TRY_OUT(list_space(&s));
    if (s.listed == 0)
        MICS_TRY_OUT(fail_empty(&s));
    MICS_TRY_OUT(simulate_candidates(&s, 0, 1));
    const int32_t listed = s.count;
    MICS_TRY_OUT(list_offload_around(&s));
    const int32_t around = s.count;
    MICS_TRY_OUT(simulate_candidates(&s, listed, 1));
    MICS_TRY_OUT(list_offload(&s, listed));
    MICS_TRY_OUT(simulate_candidates(&s, around, WORTH_OFFLOAD));
    MICS_TRY_OUT(fill_entries(&s, result));
    result->space = s.listed;
    result->fitting = s.fitting;
    result->simulated = s.simulated;
out:
    close_search(&s);
    if (status != MICS_OK)
        mics_plan_result_close(result);
    else
        *result_out = result;
    return status;
}

mics_status mics_planner_search(mics_planner *planner, const mics_plan_space *space, int32_t top,
                                mics_plan_result **result_out)
{
    static const mics_plan_space everything = {0};
    const mics_plan_space *within = space != NULL ? space : &everything;
    mics_plan_result *result = NULL;
    MICS_TRY(check_space(planner, within, top));
    planner->limit_bytes =
        planner->available_bytes - (within->fills_memory ? 0 : planner->request.margin_bytes);
    MICS_TRY(search_below_limit(planner, within, top, &result));
    if (result->count == 0 && planner->limit_bytes < planner->available_bytes) {
        mics_plan_result_close(result);
        planner->limit_bytes = planner->available_bytes;
        MICS_TRY(search_below_limit(planner, within, top, &result));
    }
    *result_out = result;
    return MICS_OK;
}

void mics_plan_result_close(mics_plan_result *result)
{
    if (result == NULL)
        return;
    mics_free(result->memory, result->entries);
    mics_free(result->memory, result);
}

// ---- rows ----

// Whether an entry is worse than a row.
static bool gives_way(const mics_plan_entry *entry, const mics_plan_entry *row)
{
    return entry->tight != row->tight ? entry->tight
                                      : round(row->step_us * 1e3) < round(entry->step_us * 1e3);
}

static void insert_entry(mics_plan_result *result, const mics_plan_entry *row)
{
    int32_t at = 0;
    while (at < result->count && !same_sharding(&result->entries[at].choice, &row->choice))
        at++;
    if (at == result->count && at == result->capacity)
        at--; // the last gives way
    if (at < result->count && !gives_way(&result->entries[at], row))
        return;
    result->count += at == result->count;
    for (; at > 0 && gives_way(&result->entries[at - 1], row); at--)
        result->entries[at] = result->entries[at - 1];
    result->entries[at] = *row;
}

mics_status mics_planner_merge(mics_planner *planner, const mics_plan_entry *row,
                               mics_plan_result *result)
{
    mics_plan_entry entry;
    mics_plan_choice choice = row->choice;
    if (choice.micro_batch == 0 || row->pipeline.stages > 0 || row->outer.every > 0 ||
        (result->count > 0 && !gives_way(&result->entries[0], row)))
        return MICS_OK;
    choice.sums_by_ring = choice.all_reduces = false;
    const bool roomy = result->count > 0 && !result->entries[0].tight;
    if (!choice_runs(planner, &choice))
        return MICS_OK;
    const bool muted = mics_log_mute(true); // perhaps not with what the planner's request rounds
    const mics_status status = mics_planner_evaluate(planner, &choice, &entry);
    (void)mics_log_mute(muted);
    if (status == MICS_ERR_INVALID)
        return MICS_OK;
    MICS_TRY(status);
    if (!entry.runs || !entry.fits || (entry.tight && roomy))
        return MICS_OK;
    if (!entry.tight && !roomy)
        result->count = 0; // what is tight is no plan any more
    insert_entry(result, &entry);
    return MICS_OK;
}

// ---- for baselines ----

mics_status least_memory(mics_planner *planner, const mics_plan_space *space,
                         mics_plan_choice *choice_out, double *bytes_out)
{
    search s = {.planner = planner, .space = space, .max_found = 1};
    mics_status status = open_search(&s);
    if (status == MICS_OK)
        status = list_space(&s);
    if (status == MICS_OK) {
        *choice_out = s.smallest.choice;
        *bytes_out = s.smallest.memory_bytes;
    }
    close_search(&s);
    return status;
}
