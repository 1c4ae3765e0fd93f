// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// What follows from the times of all steps: what was busy, what computation waited for, and the
// longest chain.
#include "plan/simulate/internal.h"

static mics_step_time time_of(const simulator *sim, int32_t rank, int32_t step)
{
    return sim->times[(int64_t)rank * sim->list->count + step];
}

static int32_t last_step(const simulator *sim, int32_t rank)
{
    int32_t last = 0;
    for (int32_t i = 1; i < sim->list->count; i++) {
        if (time_of(sim, rank, i).end_us >= time_of(sim, rank, last).end_us)
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
        const mics_step *step = &sim->list->steps[i];
        const work *w = &sim->table.steps[i];
        const mics_step_time t = time_of(sim, result->rank, i);
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

// As the engine counts it: stream by stream, what computation waits for until that stream's step is
// done.
static void sum_exposed(const simulator *sim, mics_simulation *result)
{
    double now_us = 0;
    for (int32_t i = 0; i < sim->list->count; i++) {
        const mics_step *step = &sim->list->steps[i];
        if (mics_step_is_comm(step))
            continue;
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t waited = step->wait[stream];
            const double end_us = waited < 0 ? 0 : time_of(sim, result->rank, waited).end_us;
            if (end_us <= now_us)
                continue;
            kind_of(result, &sim->list->steps[waited])->exposed_us += end_us - now_us;
            result->exposed_us += end_us - now_us;
            now_us = end_us;
        }
        now_us = time_of(sim, result->rank, i).end_us;
    }
}

// ---- the longest chain ----

// Of the steps that had to end on a rank before this one could begin, the one that ended last; -1:
// none.
static int32_t latest_before(const simulator *sim, int32_t rank, int32_t index)
{
    int32_t latest = sim->previous[index];
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        const int32_t waited = sim->list->steps[index].wait[stream];
        if (waited >= 0 &&
            (latest < 0 || time_of(sim, rank, waited).end_us > time_of(sim, rank, latest).end_us))
            latest = waited;
    }
    return latest;
}

// Goes to what the step waited for, on the member that came last.
static void step_back(const simulator *sim, int32_t *rank, int32_t *index)
{
    const mics_group members = simulated_group(sim, &sim->list->steps[*index], *rank);
    int32_t latest = -1, latest_rank = *rank;
    for (int32_t member = 0; member < members.size; member++) {
        const int32_t other = mics_group_rank(members, member);
        const int32_t before = latest_before(sim, other, *index);
        if (before >= 0 && (latest < 0 || time_of(sim, other, before).end_us >
                                              time_of(sim, latest_rank, latest).end_us)) {
            latest = before;
            latest_rank = other;
        }
    }
    *rank = latest_rank;
    *index = latest;
}

static void walk_chain(const simulator *sim, mics_simulation *result)
{
    int32_t rank = result->rank, index = last_step(sim, rank);
    while (index >= 0) {
        const mics_step_time t = time_of(sim, rank, index);
        kind_of(result, &sim->list->steps[index])->critical_us += t.end_us - t.begin_us;
        step_back(sim, &rank, &index);
    }
}

static void sum_parts(mics_simulation *result)
{
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++) {
        const int kind = i / MICS_STAGES;
        const mics_simulated_kind *k = &result->kinds[kind][i % MICS_STAGES];
        mics_simulated_part *part = &result->parts[mics_part_of((mics_step_kind)kind)];
        part->busy_us += k->busy_us;
        part->exposed_us += k->exposed_us;
        part->critical_us += k->critical_us;
    }
    for (int part = 1; part < MICS_PARTS; part++) {
        if (result->parts[part].critical_us > result->parts[result->limit].critical_us)
            result->limit = (mics_part)part;
    }
}

void fill_result(const simulator *sim, mics_simulation *result)
{
    const mics_schedule_spec *spec = &sim->schedule->spec;
    double end_us = -1;
    for (int32_t rank = 0; rank < sim->ranks; rank++) {
        const double rank_end_us = time_of(sim, rank, last_step(sim, rank)).end_us;
        if (rank_end_us > end_us)
            result->rank = rank;
        end_us = rank_end_us > end_us ? rank_end_us : end_us;
    }
    sum_steps(sim, result);
    sum_exposed(sim, result);
    walk_chain(sim, result);
    sum_parts(result);
    result->overhead_us = sim->cluster->step_overhead_us;
    result->step_us = end_us + result->overhead_us;
    result->tokens = (double)spec->batch.sequences * (double)spec->batch.length *
                     spec->micro_steps * spec->mesh.ranks;
    result->tokens_per_s = result->step_us > 0 ? result->tokens / result->step_us * 1e6 : 0;
    result->flops = mics_schedule_flops(sim->schedule, MICS_PHASE_TRAIN);
    result->sent = mics_schedule_all_bytes(sim->schedule, MICS_PHASE_TRAIN);
}
