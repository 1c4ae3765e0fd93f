// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums over a step. Its ideal: max(computation, communication) + the first gather + the last reduce.
//
// The two ends are chains along the entries' own waits: what an entry needs, whatever else its stream has
// to do before it.
#include "overlap.h"

// What brings gradients together, also the way back of their sums.
static bool is_reduction(const mics_step *step)
{
    return mics_step_kind_sums(step->kind) || step->kind == MICS_STEP_ALL_REDUCE_BACK;
}

// The longest chain of collectives before the first computation. chain[i]: up to the end of entry i.
static double first_gather(const mics_step_list *list, const double *took_us, double *chain)
{
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        double before = 0;
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t wait = step->wait[stream];
            if (wait >= 0 && chain[wait] > before)
                before = chain[wait];
        }
        if (!mics_step_is_comm(step))
            return before;
        chain[i] = before + took_us[i];
    }
    return 0;
}

static int32_t last_backward(const mics_step_list *list)
{
    for (int32_t i = list->count - 1; i >= 0; i--) {
        if (list->steps[i].kind == MICS_STEP_BACKWARD)
            return i;
    }
    return -1;
}

// The longest chain of reductions behind the last backward. chain[i]: up to the end of entry i; -1
// where that does not depend on the last backward.
static double last_reduce(const mics_step_list *list, const double *took_us, double *chain)
{
    const int32_t last = last_backward(list);
    double longest = 0;
    if (last < 0)
        return 0;
    chain[last] = 0;
    for (int32_t i = last + 1; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        chain[i] = -1;
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t wait = step->wait[stream];
            if (wait >= last && chain[wait] > chain[i])
                chain[i] = chain[wait];
        }
        if (chain[i] >= 0 && is_reduction(step))
            chain[i] += took_us[i];
        longest = chain[i] > longest ? chain[i] : longest;
    }
    return longest;
}

void cli_overlap_sum(const mics_step_list *list, const double *took_us, double *scratch,
                     cli_overlap *overlap_out)
{
    cli_overlap sum = {{0}, 0, 0, 0};
    for (int32_t i = 0; i < list->count; i++)
        sum.busy[list->steps[i].stream] += took_us[i];
    sum.first_gather = first_gather(list, took_us, scratch);
    sum.last_reduce = last_reduce(list, took_us, scratch);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        sum.ideal = sum.busy[stream] > sum.ideal ? sum.busy[stream] : sum.ideal;
    sum.ideal += sum.first_gather + sum.last_reduce;
    *overlap_out = sum;
}

cli_exposed cli_exposed_sum(const double exposed_us[MICS_STEP_KINDS])
{
    cli_exposed sum = {0};
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        const double us = exposed_us[kind];
        switch (mics_step_kind_whole((mics_step_kind)kind)) {
        case MICS_STEP_PUBLISH:
        case MICS_STEP_GATHER:
            sum.gather += us;
            break;
        case MICS_STEP_REDUCE:
            sum.reduce += us;
            break;
        case MICS_STEP_SCATTER:
        case MICS_STEP_ALL_REDUCE:
            sum.second_hop += us;
            break;
        case MICS_STEP_AGREE:
            sum.agree += us;
            break;
        default: // computation waits for none of its own
            break;
        }
    }
    return sum;
}
