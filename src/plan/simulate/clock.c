// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Events: jobs begin, rates are divided anew, the job that ends first ends.
//
// Invariants:
//   1. A stream is BUSY exactly while one job has its rank among its members and its step on that stream.
//   2. A stream WAITS exactly when its rank has been counted in `arrived` of its group and the job has not
//      begun; all other members that wait there wait for the same step, as lists are the same.
//   3. Time only grows, and every round either ends a job or there is none.
#include "mics/log.h"
#include "mics/rng.h"
#include "plan/simulate/internal.h"
#include <math.h>

mics_group simulated_group(const simulator *sim, const mics_step *step, int32_t rank)
{
    if (sim->ranks == 1 || !mics_step_is_comm(step))
        return (mics_group){.first = rank, .stride = 1, .size = 1};
    return mics_mesh_group(&sim->schedule->spec.mesh, step->axis, mics_step_scope(step), rank);
}

// ---- beginning ----

static bool is_ready(const rank_clock *clock, const mics_step *step)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (clock->done[stream] < step->wait[stream])
            return false;
    }
    return true;
}

static double factor_of(const simulator *sim, const mics_step *step, int32_t index, int32_t rank)
{
    double factor = 1;
    if (sim->options->jitter > 0)
        factor = exp(sim->options->jitter *
                     mics_rng_normal(sim->options->seed, (uint64_t)rank, (uint64_t)index));
    if (sim->slowness != NULL && !mics_step_is_comm(step))
        factor *= sim->slowness[rank];
    return factor;
}

static void begin_job(simulator *sim, int32_t index, mics_group members)
{
    const mics_step *step = &sim->list->steps[index];
    const work *w = &sim->table.steps[index];
    const double us = w->us * factor_of(sim, step, index, members.first);
    sim->jobs[sim->job_count++] = (job){.step = index,
                                        .collective = w->collective,
                                        .members = members,
                                        .left_us = us,
                                        .slack_us = 1e-12 * us};
    sim->links_changed = sim->links_changed || w->collective >= 0;
    for (int32_t member = 0; member < members.size; member++) {
        const int32_t rank = mics_group_rank(members, member);
        rank_clock *clock = &sim->clocks[rank];
        clock->state[step->stream] = STREAM_BUSY;
        clock->running[step->stream] = w->collective;
        sim->times[(int64_t)rank * sim->list->count + index].begin_us = sim->now_us;
    }
}

// A stream's next step, if all that it names is done: a computation begins, and so does a
// collective of which this was the last member.
static void try_begin(simulator *sim, int32_t rank, int stream)
{
    rank_clock *clock = &sim->clocks[rank];
    const int32_t index = clock->next[stream];
    if (index < 0 || clock->state[stream] != STREAM_FREE)
        return;
    const mics_step *step = &sim->list->steps[index];
    if (!is_ready(clock, step))
        return;
    const mics_group members = simulated_group(sim, step, rank);
    int32_t *arrived = &sim->arrived[(int64_t)stream * sim->ranks + members.first];
    clock->state[stream] = STREAM_WAITS;
    if (++*arrived < members.size)
        return;
    *arrived = 0;
    begin_job(sim, index, members);
}

// ---- ending ----

static void end_job(simulator *sim, const job *ended)
{
    const mics_stream stream = sim->list->steps[ended->step].stream;
    for (int32_t member = 0; member < ended->members.size; member++) {
        const int32_t rank = mics_group_rank(ended->members, member);
        rank_clock *clock = &sim->clocks[rank];
        clock->state[stream] = STREAM_FREE;
        clock->running[stream] = -1;
        clock->done[stream] = ended->step;
        clock->next[stream] = sim->next[ended->step];
        sim->times[(int64_t)rank * sim->list->count + ended->step].end_us = sim->now_us;
    }
    sim->links_changed = sim->links_changed || ended->collective >= 0;
}

static void begin_after(simulator *sim, const job *ended)
{
    for (int32_t member = 0; member < ended->members.size; member++) {
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            try_begin(sim, mics_group_rank(ended->members, member), stream);
    }
}

// Lets time pass until the first job ends. Those that end with it stand behind the others
// afterwards; returns how many jobs still run.
static int32_t advance(simulator *sim)
{
    double step_us = INFINITY;
    for (int32_t i = 0; i < sim->job_count; i++) {
        const double left_us = sim->jobs[i].left_us / sim->jobs[i].rate;
        step_us = left_us < step_us ? left_us : step_us;
    }
    int32_t running = 0;
    for (int32_t i = 0; i < sim->job_count; i++) {
        job *j = &sim->jobs[i];
        const bool ends = j->left_us / j->rate <= step_us;
        j->left_us -= step_us * j->rate;
        if (ends || j->left_us <= j->slack_us)
            continue;
        const job runs = *j;
        *j = sim->jobs[running];
        sim->jobs[running++] = runs;
    }
    sim->now_us += step_us;
    return running;
}

// Ends what has ended, then begins what that allows: all at one moment. The new jobs take the
// places behind those that are read here, so the ended ones are moved away first.
static void turn_over(simulator *sim, int32_t running)
{
    const int32_t ended = sim->job_count - running;
    job *const behind = sim->jobs + 3 * (int64_t)sim->ranks; // as many again
    for (int32_t i = 0; i < ended; i++) {
        behind[i] = sim->jobs[running + i];
        end_job(sim, &behind[i]);
    }
    sim->job_count = running;
    for (int32_t i = 0; i < ended; i++)
        begin_after(sim, &behind[i]);
}

static mics_status check_end(const simulator *sim)
{
    for (int32_t rank = 0; rank < sim->ranks; rank++) {
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            const int32_t index = sim->clocks[rank].next[stream];
            if (index < 0)
                continue;
            const mics_step *step = &sim->list->steps[index];
            return mics_fail(MICS_ERR_INVALID,
                             "rank %d, stream %s: step %d (%s) waits for ever; the schedule's "
                             "steps wait for each other",
                             (int)rank, mics_stream_text((mics_stream)stream), (int)index,
                             mics_step_text(step->kind, step->stage));
        }
    }
    return MICS_OK;
}

mics_status clock_run(simulator *sim)
{
    sim->links_changed = true;
    for (int32_t rank = 0; rank < sim->ranks; rank++) {
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            try_begin(sim, rank, stream);
    }
    while (sim->job_count > 0) {
        share_out(sim);
        turn_over(sim, advance(sim));
    }
    return check_end(sim);
}
