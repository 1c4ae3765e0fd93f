// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The search: lists the space, drops what does not fit, and simulates the rest in the order of
// their bounds until no bound is below what was found.
#include "plan/search/search.h"
#include "base/free.h"
#include "mics/log.h"
#include "plan/search/bound.h"
#include "plan/search/choice.h"
#include "plan/search/evaluate.h"
#include "plan/search/layered.h"
#include "plan/search/planner.h"
#include "plan/search/probe.h"
#include <math.h>
#include <stdlib.h>

enum { FASTER_TRIED = 8 };

typedef struct candidate {
    double bound_us;
    double memory_bytes;
    mics_plan_choice choice;
} candidate;

// The best of one sharding so far.
typedef struct found {
    double step_us;
    double memory_bytes;
    double inter_bytes; // sent in a step; below 0: not asked for yet
    mics_plan_choice choice;
} found;

typedef struct search {
    mics_planner *planner; // of E = S = 1
    mics_planner *at;      // of the E and S whose choices are listed
    int32_t sequence;      // this S
    bool keeps_all;        // what fits is among them that keeps activations as they are
    const mics_plan_space *space;
    int32_t max_found;
    candidate *candidates;
    int32_t count, capacity;
    found *found; // ascending
    int32_t found_count;
    candidate smallest; // of the least memory
    mics_planner *refused_at;
    mics_plan_choice refused; // the first that rounding rules out, where refused_at != NULL
    int64_t listed, fitting, simulated;
    class_cost *classes;
} search;

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

// ---- the space ----

static mics_status keep_candidate(search *s, const candidate *c)
{
    if (s->count == s->capacity) {
        const int32_t capacity = s->capacity == 0 ? 256 : 2 * s->capacity;
        void *block = s->candidates;
        MICS_TRY(mics_realloc(s->planner->memory, MICS_MEM_HOST,
                              (size_t)capacity * sizeof(candidate), &block));
        s->candidates = block;
        s->capacity = capacity;
    }
    s->candidates[s->count++] = *c;
    return MICS_OK;
}

static bool fits(const search *s, double memory_bytes)
{
    return memory_bytes <= s->planner->available_bytes;
}

static mics_status list_alone(search *s, const mics_plan_choice *choice, double *bytes_out)
{
    candidate c = {.choice = *choice};
    MICS_TRY(choice_memory(s->at, choice, &c.memory_bytes));
    MICS_TRY(choice_bound(s->at, choice, s->classes, &c.bound_us));
    if (s->listed == 0 || c.memory_bytes < s->smallest.memory_bytes)
        s->smallest = c;
    s->listed++;
    s->fitting += fits(s, c.memory_bytes);
    s->keeps_all =
        s->keeps_all || (fits(s, c.memory_bytes) &&
                         (s->space->recompute_given || !mics_recomputes(choice->recompute)));
    *bytes_out = c.memory_bytes;
    return keep_candidate(s, &c);
}

static bool layers_by_rule(const search *s)
{
    return s->space->layered_by_rule && s->space->layered_micro_steps == 0;
}

// With what just makes it fit recomputed, at either end, or everything, where that is open.
static mics_status list_choice(search *s, const mics_plan_choice *choice)
{
    mics_recompute forms[MAX_FORMS];
    double bytes = 0, other = 0;
    int32_t count = 0;
    MICS_TRY(list_alone(s, choice, &bytes));
    if (s->space->recompute_given || mics_recomputes(choice->recompute) || fits(s, bytes))
        return MICS_OK;
    if (choice->offload_units == 0)
        MICS_TRY(fitting_forms(s->at, choice, bytes, forms, &count));
    if (count == 0 && !layers_by_rule(s))
        forms[count++] = mics_recompute_all(true);
    for (int32_t i = 0; i < count; i++) {
        mics_plan_choice form = *choice;
        form.recompute = forms[i];
        if (layers_by_rule(s))
            MICS_TRY(layered_by_rule(s->at, &form, &form.layered_micro_steps));
        MICS_TRY(list_alone(s, &form, &other));
    }
    return MICS_OK;
}

// As many as are given, or as training takes; else 1, 2, 4 ... layered micro-steps, as far as that
// divides them, and all.
static mics_status list_layered(search *s, mics_plan_choice choice)
{
    bool all = false;
    choice.layered_micro_steps = s->space->layered_micro_steps;
    if (layers_by_rule(s))
        MICS_TRY(layered_by_rule(s->at, &choice, &choice.layered_micro_steps));
    if (choice.layered_micro_steps > 0)
        return list_choice(s, &choice);
    MICS_TRY(tries_all_layered(s->at, &choice, &all));
    for (choice.layered_micro_steps = 1;
         choice.layered_micro_steps <= MICS_PLAN_MAX_LAYERED_MICRO_STEPS &&
         choice.micro_steps % choice.layered_micro_steps == 0;
         choice.layered_micro_steps *= 2)
        MICS_TRY(list_choice(s, &choice));
    choice.layered_micro_steps = choice.micro_steps;
    return all ? list_choice(s, &choice) : MICS_OK;
}

// Every recomputation and prefetch of one micro-batch.
static mics_status list_batch(search *s, mics_plan_choice choice)
{
    const mics_plan_space *space = s->space;
    const mics_recompute given = space->recompute;
    const bool open = space->recompute_open && given.units > 0;
    for (int way = 0; way < (open || (layers_by_rule(s) && !space->recompute_given) ? 2 : 1);
         way++) {
        choice.recompute = mics_recompute_all(way == 1);
        if (space->recompute_given)
            choice.recompute = given;
        if (open)
            choice.recompute.last = way == 1;
        choice.prefetch = space->prefetch_given ? space->prefetch : space->prefetch_least;
        const int32_t deepest = space->prefetch_given ? space->prefetch : MICS_PLAN_MAX_PREFETCH;
        for (; choice.prefetch <= deepest; choice.prefetch++)
            MICS_TRY(list_layered(s, choice));
    }
    return MICS_OK;
}

// Whether a micro-batch's activations alone, as few as they can be, are far beyond the memory: so
// are those of larger ones.
static mics_status is_hopeless(search *s, mics_plan_choice choice, bool *hopeless_out)
{
    const batch_probe *probe = NULL;
    choice.recompute = mics_recompute_all(true);
    MICS_TRY(probe_batch(s->at, &choice, &probe));
    *hopeless_out = (double)activation_bytes(probe, 1) > 4 * s->planner->available_bytes;
    return MICS_OK;
}

// Every micro-batch of one sharding whose collectives are priced.
static mics_status list_batches(search *s, mics_plan_choice choice)
{
    const mics_planner *planner = s->at;
    bool hopeless = false;
    for (int32_t i = 0; i < planner->micro_batch_count && !hopeless; i++) {
        choice.micro_batch = planner->micro_batches[i];
        if ((s->sequence > 1 && s->space->sequence == 0 && i > 0) || // as fewer ranks would do
            (s->space->micro_batch > 0 && s->space->micro_batch != choice.micro_batch) ||
            rank_share(planner) / choice.micro_batch > INT32_MAX / 2)
            continue;
        choice.micro_steps = (int32_t)micro_steps_of(planner, choice.micro_batch);
        MICS_TRY(list_batch(s, choice));
        MICS_TRY(is_hopeless(s, choice, &hopeless));
    }
    return MICS_OK;
}

// Every batch of one sharding and its collectives, unless rounding rules them out.
static mics_status list_sharding(search *s, const mics_plan_choice *choice)
{
    const bool muted = mics_log_mute(true);
    const mics_status status = probe_rounding(s->at, choice);
    (void)mics_log_mute(muted);
    if (status != MICS_OK && status != MICS_ERR_INVALID)
        return status;
    if (status == MICS_OK) {
        bool helps = false;
        MICS_TRY(price_collectives(s->at, s->space, choice, s->classes, &helps));
        return helps ? list_batches(s, *choice) : MICS_OK;
    }
    if (s->refused_at == NULL) {
        s->refused_at = s->at;
        s->refused = *choice;
    }
    return MICS_OK;
}

static mics_status list_collectives(search *s, mics_sharding sharding)
{
    const mics_plan_space *space = s->space;
    const bool gathers = degree_has_stages(s->planner, sharding.params);
    const bool reduces = degree_has_stages(s->planner, sharding.grads);
    for (int way = 0; way < 16; way++) {
        const mics_plan_choice choice = {.sharding = sharding,
                                         .experts = s->at->experts,
                                         .sequence = s->sequence,
                                         .offload_units = space->offload_units,
                                         .gather_two_stage = (way & 1) != 0,
                                         .reduce_two_stage = (way & 2) != 0,
                                         .boundary_two_stage = space->collectives_given
                                                                   ? space->boundary_two_stage
                                                                   : (way & 8) == 0,
                                         .sums_by_ring = space->sums_by_ring,
                                         .all_reduces = space->all_reduces,
                                         .early_gathers = (way & 4) != 0};
        const bool direct = sums_directly(s->planner, &choice);
        const bool early = mics_planner_gathers_early(s->planner, &choice, false);
        if ((choice.early_gathers && !early) ||
            ((way & 8) != 0 && !may_ring_boundary(s->planner, space, &choice)) ||
            (space->early_given && choice.early_gathers != (space->early_gathers && early)) ||
            (choice.gather_two_stage && !gathers) || (choice.reduce_two_stage && !reduces) ||
            (direct && choice.reduce_two_stage != reduces))
            continue;
        if (space->collectives_given &&
            (choice.gather_two_stage != (space->gather_two_stage && gathers) ||
             (!direct && choice.reduce_two_stage != (space->reduce_two_stage && reduces))))
            continue;
        MICS_TRY(list_sharding(s, &choice));
    }
    return MICS_OK;
}

// Every E of one sharding, where P and S have a common multiple as training wants it.
static mics_status list_experts(search *s, mics_sharding sharding)
{
    const mics_planner *planner = s->planner;
    if (sharding.params % s->sequence != 0 && s->sequence % sharding.params != 0)
        return MICS_OK;
    for (int32_t i = 0; i < planner->degree_count; i++) {
        const int32_t experts = planner->degrees[i];
        if (sharding.params % experts != 0 || !can_spread(planner, experts) ||
            (experts > 1 && s->sequence > 1 && s->space->experts == 0) ||
            (s->space->experts > 0 && s->space->experts != experts))
            continue;
        MICS_TRY(planner_of(s->planner, experts, s->sequence, &s->at));
        MICS_TRY(list_collectives(s, sharding));
    }
    return MICS_OK;
}

// Every sharding at this S.
static mics_status list_shardings(search *s)
{
    const mics_planner *planner = s->planner;
    const int32_t *degrees = planner->degrees, count = planner->degree_count;
    if (s->space->sharding.params > 0)
        return list_experts(s, s->space->sharding);
    for (int32_t p = 0; p < count; p++) {
        for (int32_t g = p; g < count; g++) {
            for (int32_t o = g; o < count && degrees[g] % degrees[p] == 0; o++) {
                const mics_sharding sharding = {degrees[p], degrees[g], degrees[o]};
                if (degrees[o] % degrees[g] == 0 && in_space(planner, s->space, sharding))
                    MICS_TRY(list_experts(s, sharding));
            }
        }
    }
    return MICS_OK;
}

// Whether nothing fits, or one sequence takes so much that more than half of it would be made again
// or copied.
static mics_status is_long(search *s, bool *long_out)
{
    const mics_plan_choice choice = {.micro_batch = s->planner->micro_batches[0], .micro_steps = 1};
    const batch_probe *probe = NULL;
    MICS_TRY(probe_batch(s->planner, &choice, &probe));
    *long_out = s->fitting == 0 || s->sequence > 1 ||
                (double)activation_bytes(probe, 1) > 2 * s->planner->available_bytes;
    return MICS_OK;
}

// With more and more ranks a sequence where it is long, until there are sequences for all ranks, and some choice fits
// that keeps all activations.
static mics_status list_space(search *s)
{
    const mics_planner *planner = s->planner;
    const int64_t batch = planner->request.global_batch;
    const int32_t given = s->space->sequence, most = given > 0 ? given : planner->ranks_per_node;
    bool longer = true;
    for (s->sequence = given > 0 ? given : 1; s->sequence <= most; s->sequence++) {
        if (given == 0 && !can_cut(planner, s->sequence))
            continue;
        MICS_TRY(list_shardings(s));
        MICS_TRY(is_long(s, &longer));
        if ((s->keeps_all || !longer) && batch >= planner->world / s->sequence)
            break;
    }
    return MICS_OK;
}

// ---- simulation, best bound first ----

static bool same_sharding(const mics_plan_choice *left, const mics_plan_choice *right)
{
    const mics_sharding *a = &left->sharding, *b = &right->sharding;
    return a->params == b->params && a->grads == b->grads && a->optimizer == b->optimizer &&
           left->experts == right->experts && left->sequence == right->sequence;
}

static int32_t index_of_sharding(const search *s, const mics_plan_choice *choice)
{
    int32_t at = 0;
    while (at < s->found_count && !same_sharding(&s->found[at].choice, choice))
        at++;
    return at;
}

// Whether a bound is above a time beyond rounding.
static bool is_above(double bound_us, double time_us)
{
    return bound_us > time_us + 2e-3 + 1e-9 * time_us;
}

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
    found f = {.choice = *choice, .inter_bytes = -1};
    const batch_probe *probe = NULL;
    mics_memory_ledger ledger;
    mics_planner *of = NULL;
    MICS_TRY(planner_of(s->planner, choice->experts, choice->sequence, &of));
    MICS_TRY(probe_batch(of, choice, &probe));
    MICS_TRY(time_choice(of, choice, &f.step_us, &ledger));
    s->simulated++;
    *bytes_out = f.memory_bytes = (double)ledger.total;
    return fits(s, f.memory_bytes) ? insert_found(s, f) : MICS_OK;
}

// Message buffers are in the ledger alone. What just fits without them takes more recomputation.
static mics_status simulate_choice(search *s, mics_plan_choice as)
{
    mics_recompute forms[MAX_FORMS];
    double bytes = 0;
    int32_t count = 0;
    MICS_TRY(try_choice(s, &as, &bytes));
    if (!fits(s, bytes) && !s->space->recompute_given)
        MICS_TRY(smaller_forms(s->planner, &as, bytes, forms, &count));
    for (int32_t i = 0; i < count; i++) {
        as.recompute = forms[i];
        MICS_TRY(try_choice(s, &as, &bytes));
    }
    return MICS_OK;
}

static mics_status simulate_candidates(search *s)
{
    const bool all = s->space->exhaustive;
    if (s->count > 0)
        qsort(s->candidates, (size_t)s->count, sizeof(candidate), compare_candidates);
    for (int32_t i = 0; i < s->count; i++) {
        const candidate *c = &s->candidates[i];
        const bool full = s->found_count == s->max_found;
        if (!all && full && is_above(c->bound_us, s->found[s->max_found - 1].step_us))
            break;
        const int32_t same = index_of_sharding(s, &c->choice);
        if (!fits(s, c->memory_bytes) ||
            (!all && same < s->found_count && is_above(c->bound_us, s->found[same].step_us)))
            continue;
        MICS_TRY(simulate_choice(s, c->choice));
    }
    return MICS_OK;
}

// Around `count` of the best, or around what has the least memory.
static mics_status search_offload(search *s, int32_t count)
{
    mics_plan_choice ways[MAX_OFFLOAD_WAYS] = {s->smallest.choice};
    for (int32_t i = 0; i < count; i++)
        ways[i] = s->found[i].choice;
    double bytes = 0;
    MICS_TRY(list_offload(s->planner, s->space, ways, &count));
    for (int32_t i = 0; i < count; i++)
        MICS_TRY(try_choice(s, &ways[i], &bytes));
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
        if (!fits(s, s->candidates[i].memory_bytes) && s->candidates[i].bound_us < worth_us)
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
                        (size_t)(s->found_count + 1) * sizeof(mics_plan_entry), &block));
    result->entries = block;
    for (int32_t i = 0; i < s->found_count; i++)
        MICS_TRY(mics_planner_evaluate(s->planner, &s->found[i].choice, &result->entries[i]));
    result->count = s->found_count;
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
    if (s->refused_at != NULL)
        return probe_rounding(s->refused_at, &s->refused);
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

mics_status mics_planner_search(mics_planner *planner, const mics_plan_space *space, int32_t top,
                                mics_plan_result **result_out)
{
    static const mics_plan_space everything = {0};
    search s = {.planner = planner, .space = space != NULL ? space : &everything, .max_found = top};
    mics_plan_result *result = NULL;
    mics_status status = MICS_OK;
    void *block = NULL;
    MICS_TRY(check_space(planner, s.space, top));
    MICS_TRY_OUT(mics_alloc(planner->memory, MICS_MEM_HOST, sizeof(mics_plan_result), &block));
    result = block;
    result->memory = planner->memory;
    MICS_TRY_OUT(open_search(&s));
    MICS_TRY_OUT(list_space(&s));
    if (s.listed == 0)
        MICS_TRY_OUT(fail_empty(&s));
    MICS_TRY_OUT(simulate_candidates(&s));
    MICS_TRY_OUT(
        search_offload(&s, s.found_count < MAX_OFFLOAD_BASES ? s.found_count : MAX_OFFLOAD_BASES));
    if (s.found_count > 0 && s.smallest.choice.sequence > 1) // which may then keep all of it
        MICS_TRY_OUT(search_offload(&s, 0));
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

void mics_plan_result_close(mics_plan_result *result)
{
    if (result == NULL)
        return;
    mics_free(result->memory, result->entries);
    mics_free(result->memory, result);
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
