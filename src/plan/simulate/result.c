// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What follows from the times of all steps: what was busy, what computation waited for, and the
// longest chain.
#include "mics/core/ledger.h"
#include "plan/simulate/internal.h"

static int32_t last_step(const simulator *sim)
{
    int32_t last = 0;
    for (int32_t i = 1; i < sim->list->count; i++) {
        if (sim->times[i].end_us >= sim->times[last].end_us)
            last = i;
    }
    return last;
}

// ---- sums over steps ----

static void take_pace(const collective *c, double us, double *slowest, mics_simulated_kind *kind)
{
    if (us <= *slowest)
        return;
    *slowest = us;
    kind->tier = c->use.tier;
    kind->limit = c->use.limit;
}

static mics_simulated_kind *kind_of(mics_simulation *result, const mics_step *step)
{
    return &result->kinds[step->kind][step->stage];
}

static void sum_steps(const simulator *sim, mics_simulation *result)
{
    double slowest[MICS_STEP_KINDS][MICS_STAGES] = {{0}};
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++)
        result->kinds[i / MICS_STAGES][i % MICS_STAGES].tier = -1;
    for (int32_t i = 0; i < sim->list->count; i++) {
        if (!step_runs(sim, i))
            continue;
        const mics_step *step = &sim->list->steps[i];
        const work *w = &sim->table.steps[i];
        const mics_step_time t = sim->times[i];
        mics_simulated_kind *kind = kind_of(result, step);
        kind->steps++;
        kind->alone_us += w->us;
        kind->busy_us += t.end_us - t.begin_us;
        result->stream_us[step->stream] += t.end_us - t.begin_us;
        if (w->collective < 0)
            continue;
        const collective *c = &sim->table.collectives[w->collective];
        take_pace(c, w->us, &slowest[step->kind][step->stage], kind);
        for (int tier = 0; tier < MICS_CLUSTER_TIERS; tier++)
            result->tier_bytes[tier] += c->use.bytes[tier];
    }
    result->compute_us = result->stream_us[MICS_STREAM_COMPUTE];
}

// Computation has nothing to do from *now_io until a step ends.
static void add_exposed(const simulator *sim, mics_simulation *result, int32_t step, double *now_io)
{
    const double exposed_us = sim->times[step].end_us - *now_io;
    if (exposed_us <= 0)
        return;
    kind_of(result, &sim->list->steps[step])->exposed_us += exposed_us;
    result->exposed_us += exposed_us;
    *now_io += exposed_us;
}

// As the engine counts it: stream by stream, what computation waits for until that stream's step is
// done; in the end for the agreement, which may be the list's last step.
static void sum_exposed(const simulator *sim, mics_simulation *result)
{
    double now_us = 0;
    for (int32_t i = 0; i < sim->list->count; i++) {
        const mics_step *step = &sim->list->steps[i];
        if (!mics_step_is_compute(step) || !step_runs(sim, i))
            continue;
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t waited = waited_step(sim, i, stream);
            if (waited >= 0)
                add_exposed(sim, result, waited, &now_us);
        }
        now_us = sim->times[i].end_us;
    }
    const int32_t last = last_step(sim);
    if (sim->list->steps[last].kind == MICS_STEP_AGREE)
        add_exposed(sim, result, last, &now_us);
}

// ---- the longest chain ----

// Of the steps that had to end before this one could begin, the one that ended last; -1: none.
static int32_t latest_before(const simulator *sim, int32_t index)
{
    int32_t latest = sim->previous[index];
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        const int32_t waited = waited_step(sim, index, stream);
        if (waited >= 0 && (latest < 0 || sim->times[waited].end_us > sim->times[latest].end_us))
            latest = waited;
    }
    return latest;
}

static void walk_chain(const simulator *sim, mics_simulation *result)
{
    for (int32_t i = last_step(sim); i >= 0; i = latest_before(sim, i))
        kind_of(result, &sim->list->steps[i])->critical_us +=
            sim->times[i].end_us - sim->times[i].begin_us;
}

void fill_result(const simulator *sim, mics_simulation *result)
{
    sum_steps(sim, result);
    sum_exposed(sim, result);
    walk_chain(sim, result);
    result->overhead_us = sim->cluster->step_overhead_us;
    result->step_us = sim->times[last_step(sim)].end_us + result->overhead_us;
    result->flops = mics_schedule_flops(sim->schedule, MICS_PHASE_TRAIN);
    result->sent = mics_schedule_all_bytes(sim->schedule, MICS_PHASE_TRAIN);
    result->met = mics_schedule_meeting_bytes(sim->schedule);
}

mics_part mics_part_of(mics_step_kind kind)
{
    switch (kind) {
    case MICS_STEP_FORWARD:
    case MICS_STEP_BACKWARD:
        return MICS_PART_COMPUTATION;
    case MICS_STEP_GATHER:
        return MICS_PART_GATHER;
    case MICS_STEP_REDUCE:
        return MICS_PART_REDUCE;
    case MICS_STEP_SCATTER:
    case MICS_STEP_REPLICA_SCATTER:
    case MICS_STEP_REPLICA_GATHER:
        return MICS_PART_SECOND_HOP;
    case MICS_STEP_ALL_TO_ALL:
        return MICS_PART_ALL_TO_ALL;
    case MICS_STEP_STORE:
    case MICS_STEP_FETCH:
        return MICS_PART_COPY;
    case MICS_STEP_SIZES:
    case MICS_STEP_PARAM_SYNC:
    case MICS_STEP_MOMENTUM_TO_OWNERS:
    case MICS_STEP_MOMENTUM_BACK:
        return MICS_PART_PARAM_SYNC;
    case MICS_STEP_AGREE_WORLD:
    case MICS_STEP_MEET_CHANGE:
    case MICS_STEP_MEET_SCATTER:
    case MICS_STEP_MEET_UPDATE:
    case MICS_STEP_MEET_GATHER:
    case MICS_STEP_MEET_SPREAD:
    case MICS_STEP_MEET_ADOPT:
        return MICS_PART_MEETING;
    default:
        return MICS_PART_UPDATE;
    }
}
