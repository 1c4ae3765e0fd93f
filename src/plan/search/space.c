// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The space: every choice with its memory and its bound.
#include "mics/log.h"
#include "plan/search/choice.h"
#include "plan/search/layered.h"
#include "plan/search/planner.h"
#include "plan/search/search.h"

bool same_sharding(const mics_plan_choice *left, const mics_plan_choice *right)
{
    const mics_sharding *a = &left->sharding, *b = &right->sharding;
    return a->params == b->params && a->grads == b->grads && a->optimizer == b->optimizer &&
           left->experts == right->experts && left->sequence == right->sequence;
}

int32_t index_of_sharding(const search *s, const mics_plan_choice *choice)
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

bool is_cut(const search *s, const mics_plan_choice *choice, double bound_us, double worth)
{
    const int32_t same = index_of_sharding(s, choice);
    const bool full = s->found_count == s->max_found;
    if (s->space->exhaustive || s->found_count == 0)
        return false;
    if (worth < 1)
        return bound_us > worth * s->found[0].step_us;
    return (same < s->found_count && is_above(bound_us, s->found[same].step_us)) ||
           (full && is_above(bound_us, s->found[s->max_found - 1].step_us));
}

mics_status keep_candidate(search *s, const candidate *c)
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

static mics_status list_alone(search *s, const mics_plan_choice *choice, double *bytes_out)
{
    candidate c = {.choice = *choice, .unseen_bytes = s->unseen_bytes};
    MICS_TRY(choice_memory(s->at, choice, &c.memory_bytes));
    c.memory_bytes += c.unseen_bytes;
    MICS_TRY(choice_bound(s->at, choice, s->classes, &c.bound_us));
    if (s->listed == 0 || c.memory_bytes < s->smallest.memory_bytes)
        s->smallest = c;
    s->listed++;
    s->fitting += search_fits(s, c.memory_bytes);
    s->keeps_all =
        s->keeps_all || (search_fits(s, c.memory_bytes) &&
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
    if (s->space->recompute_given || mics_recomputes(choice->recompute) || search_fits(s, bytes))
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

// As many as are given, or as training takes; else those of layered_numbers.
static mics_status list_layered(search *s, mics_plan_choice choice)
{
    const double used = s->unseen_bytes;
    int32_t numbers[MAX_LAYERED_NUMBERS], count = 0;
    choice.layered_micro_steps = s->space->layered_micro_steps;
    if (layers_by_rule(s))
        MICS_TRY(layered_by_rule(s->at, &choice, &choice.layered_micro_steps));
    if (choice.layered_micro_steps > 0)
        return list_choice(s, &choice);
    MICS_TRY(layered_numbers(s->at, &choice, limit_of(s->at) - used, numbers, &count));
    for (int32_t i = 0; i < count; i++) {
        choice.layered_micro_steps = numbers[i];
        MICS_TRY(list_choice(s, &choice));
    }
    return MICS_OK;
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

// Of `bytes` that the smallest schedule takes, what choice_memory does not know; 0 bytes: all is known.
static mics_status take_unseen(search *s, mics_plan_choice choice, double bytes)
{
    double known = bytes;
    choice.micro_batch = s->at->micro_batches[0];
    choice.micro_steps = choice.layered_micro_steps = 1;
    if (bytes > 0)
        MICS_TRY(choice_memory(s->at, &choice, &known));
    s->unseen_bytes = bytes - known;
    return MICS_OK;
}

// Every batch of one sharding and its collectives, unless rounding rules them out.
static mics_status list_sharding(search *s, const mics_plan_choice *choice)
{
    const bool muted = mics_log_mute(true);
    double bytes = 0;
    const mics_status status = probe_rounding(s->at, choice, &bytes);
    (void)mics_log_mute(muted);
    if (status != MICS_OK && status != MICS_ERR_INVALID)
        return status;
    if (status == MICS_OK) {
        bool helps = false;
        MICS_TRY(take_unseen(s, *choice, bytes));
        MICS_TRY(price_collectives(s->at, s->space, choice, s->classes, &helps));
        helps = helps || (!choice->reduce_two_stage && !sums_directly(s->at, choice) &&
                          degree_has_stages(s->at, choice->sharding.grads)); // rings go together
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
            (!space->collectives_given && !choice_runs(s->planner, &choice)) ||
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
mics_status list_space(search *s)
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
