// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Sums over a step, and its ideal: a bound from below, so that the step over it says what the order
// of collectives and the running of them lost, and not what the schedule's waits forbid.
//
// Computation has an order, which is the list's. Collectives are taken in any order here that their
// waits allow, one at a time on each stream.
#include "overlap.h"
#include <math.h>

// ---- the ends ----

// What brings gradients together, and early ones back.
static bool is_reduction(const mics_step *step)
{
    return step->kind == MICS_STEP_REDUCE || mics_step_is_second_hop(step);
}

// When the first computation can begin.
static double first_gather(const mics_step_list *list, const run_chain *chains)
{
    for (int32_t i = 0; i < list->count; i++) {
        if (mics_step_is_compute(&list->steps[i]))
            return chains[i].earliest;
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

// The longest chain of reductions behind the last backward, along the entries' own waits.
// Overwrites chains[i].earliest: up to the end of entry i; -1 where that does not depend on the
// last backward.
static double last_reduce(const mics_step_list *list, const double *took_us, run_chain *chains)
{
    const int32_t last = last_backward(list);
    double longest = 0;
    if (last < 0)
        return 0;
    chains[last].earliest = 0;
    for (int32_t i = last + 1; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        double up_to = -1;
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t wait = step->wait[stream];
            if (wait >= last)
                up_to = fmax(up_to, chains[wait].earliest);
        }
        if (up_to >= 0 && is_reduction(step))
            up_to += took_us[i];
        chains[i].earliest = up_to;
        longest = fmax(longest, up_to);
    }
    return longest;
}

// ---- the ideal ----

// `index` waits for the end of `wait`.
static void note_wait(const mics_step_list *list, const double *took_us, run_chain *chains,
                      int32_t index, int32_t wait)
{
    const int32_t needed_by =
        mics_step_is_compute(&list->steps[index]) ? index : chains[index].needed_by;
    chains[wait].behind = fmax(chains[wait].behind, took_us[index] + chains[index].behind);
    if (needed_by < chains[wait].needed_by)
        chains[wait].needed_by = needed_by;
}

// From the last entry to the first: what waits for each. The norm names the newest entry of each
// stream, and means all of them.
static void look_behind(const mics_step_list *list, const double *took_us, run_chain *chains)
{
    int32_t next = -1; // computation
    for (int32_t i = 0; i < list->count; i++)
        chains[i] =
            (run_chain){.needed_by = list->count, .from = {INFINITY, INFINITY, INFINITY, INFINITY}};
    for (int32_t i = list->count - 1; i >= 0; i--) {
        const mics_step *step = &list->steps[i];
        if (mics_step_is_compute(step)) {
            if (next >= 0)
                note_wait(list, took_us, chains, next, i);
            next = i;
        }
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            if (step->wait[stream] >= 0)
                note_wait(list, took_us, chains, i, step->wait[stream]);
        }
        for (int32_t other = 0; step->kind == MICS_STEP_NORM && other < i; other++)
            note_wait(list, took_us, chains, i, other);
    }
}

// When a computation can begin for the collectives of one stream that must be before it, one at a
// time: all of them from the start, or those that no computation before it needed from when they
// can begin.
static double after_collectives(const run_chain *chain, int stream, double *work)
{
    *work += chain->work[stream];
    return chain->work[stream] > 0 ? fmax(*work, chain->from[stream] + chain->work[stream]) : 0;
}

static double after_waits(const mics_step *step, const double *took_us, const run_chain *chains)
{
    double earliest = 0;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        const int32_t wait = step->wait[stream];
        if (wait >= 0)
            earliest = fmax(earliest, chains[wait].earliest + took_us[wait]);
    }
    return earliest;
}

// From the first entry to the last: when each can begin.
static void look_ahead(const mics_step_list *list, const double *took_us, run_chain *chains)
{
    double work[MICS_STREAMS] = {0}, computed = 0, newest = 0; // ends: of computation, of whatever
    for (int32_t i = 0; i < list->count; i++) {
        const mics_step *step = &list->steps[i];
        run_chain *chain = &chains[i];
        chain->earliest = after_waits(step, took_us, chains);
        if (mics_step_is_compute(step)) {
            chain->earliest = fmax(chain->earliest, computed);
            for (int stream = 0; stream < MICS_STREAMS; stream++)
                chain->earliest =
                    fmax(chain->earliest, after_collectives(chain, stream, &work[stream]));
            if (step->kind == MICS_STEP_NORM)
                chain->earliest = fmax(chain->earliest, newest);
            computed = chain->earliest + took_us[i];
        } else if (chain->needed_by < list->count) {
            run_chain *first = &chains[chain->needed_by];
            first->work[step->stream] += took_us[i];
            first->from[step->stream] = fmin(first->from[step->stream], chain->earliest);
        }
        newest = fmax(newest, chain->earliest + took_us[i]);
    }
}

// The work of a stream from some entry on, between the earliest of their beginnings and the
// shortest of what is behind them: the largest of these sums.
static double bound_by(const mics_step_list *list, const double *took_us, const run_chain *chains,
                       mics_stream stream)
{
    double work = 0, before = INFINITY, behind = INFINITY, largest = 0;
    for (int32_t i = list->count - 1; i >= 0; i--) {
        if (list->steps[i].stream != stream)
            continue;
        before = fmin(before, chains[i].earliest);
        behind = fmin(behind, chains[i].behind);
        work += took_us[i];
        largest = fmax(largest, before + work + behind);
    }
    return largest;
}

static double find_ideal(const mics_step_list *list, const double *took_us, const run_chain *chains)
{
    double ideal = 0;
    for (int32_t i = 0; i < list->count; i++)
        ideal = fmax(ideal, chains[i].earliest + took_us[i] + chains[i].behind);
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        ideal = fmax(ideal, bound_by(list, took_us, chains, (mics_stream)stream));
    return ideal;
}

void run_overlap_sum(const mics_step_list *list, const double *took_us, run_chain *scratch,
                     run_overlap *overlap_out)
{
    run_overlap sum = {{0}, 0, 0, 0};
    for (int32_t i = 0; i < list->count; i++)
        sum.busy[list->steps[i].stream] += took_us[i];
    look_behind(list, took_us, scratch);
    look_ahead(list, took_us, scratch);
    sum.ideal = find_ideal(list, took_us, scratch);
    sum.first_gather = first_gather(list, scratch);
    sum.last_reduce = last_reduce(list, took_us, scratch);
    *overlap_out = sum;
}

run_exposed run_exposed_sum(const double exposed_us[MICS_STEP_KINDS])
{
    run_exposed sum = {0};
    for (int kind = 0; kind < MICS_STEP_KINDS; kind++) {
        const double us = exposed_us[kind];
        switch ((mics_step_kind)kind) {
        case MICS_STEP_SIZES:
        case MICS_STEP_PARAM_SYNC:
        case MICS_STEP_MOMENTUM_TO_OWNERS:
        case MICS_STEP_MOMENTUM_BACK:
        case MICS_STEP_GATHER:
            sum.gather += us;
            break;
        case MICS_STEP_REDUCE:
            sum.reduce += us;
            break;
        case MICS_STEP_SCATTER:
        case MICS_STEP_REPLICA_SCATTER:
        case MICS_STEP_REPLICA_GATHER:
            sum.second_hop += us;
            break;
        case MICS_STEP_AGREE:
            sum.agree += us;
            break;
        case MICS_STEP_AGREE_WORLD:
        case MICS_STEP_MEET_SCATTER:
        case MICS_STEP_MEET_GATHER:
        case MICS_STEP_MEET_SPREAD:
            sum.meeting += us;
            break;
        case MICS_STEP_STORE:
        case MICS_STEP_FETCH:
            sum.copy += us;
            break;
        default: // computation waits for none of its own
            break;
        }
    }
    return sum;
}
