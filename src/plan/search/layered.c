// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How many micro-batches a plan has in flight: what the search tries, and what training takes where
// the run file leaves it open.
#include "schedule/layered.h"
#include "plan/search/bound.h"
#include "plan/search/choice.h"
#include "plan/search/estimate.h"
#include "plan/search/layered.h"
#include "plan/search/planner.h"
#include "plan/search/probe.h"
#include "schedule/rules.h"

static bool rounds(const mics_planner *planner, const mics_plan_choice *choice)
{
    return planner->request.precision == MICS_PRECISION_MIXED && choice->sharding.grads > 1;
}

// Gradients that each micro-batch in flight has a slot for, as in src/schedule/layered.c.
static size_t held_bytes(const mics_planner *planner, const mics_plan_choice *choice)
{
    const mics_precision precision = planner->request.precision;
    const bool slots = precision == MICS_PRECISION_MIXED && !rounds_sums(planner, choice);
    size_t elems = 0;
    for (int32_t c = 0; slots && c < planner->class_count; c++) {
        const unit_class *class = &planner->classes[c];
        if (class_sharding(planner, class, choice->sharding).grads == 1)
            elems += (size_t) class->held * (size_t) class->padded_elems;
    }
    return elems * mics_precision_bytes(precision, MICS_MEM_REDUCE);
}

static mics_status need_of(mics_planner *planner, const mics_plan_choice *choice,
                           mics_layered_need *need_out)
{
    batch_probe batch;
    MICS_TRY(batch_of(planner, choice, &batch));
    *need_out = (mics_layered_need){.micro_steps = choice->micro_steps,
                                    .crosses_nodes = planner->ranks > planner->ranks_per_node,
                                    .rounds = rounds(planner, choice),
                                    .state_bytes = choice_state_bytes(planner, choice),
                                    .each_bytes = batch.layered_bytes + batch.token_bytes +
                                                  held_bytes(planner, choice)};
    return MICS_OK;
}

mics_status layered_by_rule(mics_planner *planner, const mics_plan_choice *choice,
                            int32_t *number_out)
{
    mics_plan_choice as = *choice;
    mics_layered_need need;
    const char *why = NULL;
    double bytes = 0;
    MICS_TRY(need_of(planner, choice, &need));
    int32_t number = mics_layered_auto(&need, &why), low = 1, high = number + 1;
    while (high - low > 1) { // as src/run/layered.c: the most that fit, the rule's number first
        as.layered_micro_steps = mics_schedule_layered_micro_steps(as.micro_steps, number);
        MICS_TRY(choice_memory(planner, &as, &bytes));
        if (bytes <= planner->available_bytes)
            low = number;
        else
            high = as.layered_micro_steps;
        number = low + (high - low) / 2;
    }
    *number_out = mics_schedule_layered_micro_steps(as.micro_steps, low);
    return MICS_OK;
}

mics_status mics_planner_layered(mics_planner *planner, const mics_plan_choice *choice,
                                 int32_t *number_out)
{
    MICS_TRY(planner_of(planner, choice->experts, choice->sequence, &planner));
    MICS_TRY(check_choice(planner, choice));
    return layered_by_rule(planner, choice, number_out);
}

static void add_number(int32_t micro_steps, int32_t number, int32_t *numbers, int32_t *count)
{
    const int32_t even = mics_schedule_layered_micro_steps(micro_steps, number);
    if (micro_steps % even != 0 && micro_steps > MICS_PLAN_MAX_ALL_LAYERED)
        return;
    for (int32_t i = 0; i < *count; i++) {
        if (numbers[i] == even)
            return;
    }
    numbers[(*count)++] = even;
}

// The most up to `most` that fit, of many micro-steps in even groups, beside one.
static void add_largest(int32_t micro_steps, double free_bytes, size_t each_bytes, int32_t most,
                        int32_t *numbers, int32_t *count)
{
    const double more = free_bytes / ((double)each_bytes + 1);
    int32_t number = more < most - 1 ? (int32_t)more + 1 : most;
    if (free_bytes < 0)
        return;
    while (micro_steps > MICS_PLAN_MAX_ALL_LAYERED && micro_steps % number != 0)
        number--;
    add_number(micro_steps, number, numbers, count);
}

mics_status layered_numbers(mics_planner *planner, const mics_plan_choice *choice,
                            double limit_bytes, int32_t numbers_out[MAX_LAYERED_NUMBERS],
                            int32_t *count_out)
{
    const int32_t all = choice->micro_steps, listed = MICS_PLAN_MAX_LAYERED_MICRO_STEPS;
    const int32_t most = rounds(planner, choice) ? listed : MICS_PLAN_MAX_ALL_LAYERED;
    mics_plan_choice again = *choice;
    mics_layered_need need;
    double bytes = 0;
    *count_out = 0;
    for (int32_t number = 1; number <= listed; number *= 2)
        add_number(all, number, numbers_out, count_out);
    MICS_TRY(need_of(planner, choice, &need));
    if (all <= most && (double)(all - 1) * (double)need.each_bytes <= limit_bytes)
        add_number(all, all, numbers_out, count_out);
    if (all == 1 || planner->ranks <= planner->ranks_per_node)
        return MICS_OK;
    again.layered_micro_steps = 1;
    for (int way = 0; way < 2; way++) { // as it is, and recomputed where `most` do not fit
        MICS_TRY(need_of(planner, &again, &need));
        MICS_TRY(choice_memory(planner, &again, &bytes));
        add_largest(all, limit_bytes - bytes, need.each_bytes, most, numbers_out, count_out);
        if (bytes + (double)(most - 1) * (double)need.each_bytes <= limit_bytes)
            break;
        again.recompute = mics_recompute_all(true);
    }
    return MICS_OK;
}
