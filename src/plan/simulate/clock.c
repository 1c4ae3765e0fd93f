// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Events: jobs begin, rates are divided anew, the job that ends first ends. All ranks have the same
// list and the same work, so they run in step, and one stands for all.
//
// Invariants, checked by is_consistent after each round:
//   1. A stream is busy exactly while one job has its step on that stream.
//   2. Time only grows, and the round ended a job.
#include "base/assert.h"
#include "mics/log.h"
#include "plan/simulate/internal.h"
#include <math.h>

// A stream's next step, if all that it names is done.
static void try_begin(simulator *sim, int stream)
{
    const int32_t index = sim->next[stream];
    if (index < 0 || sim->busy[stream])
        return;
    for (int other = 0; other < MICS_STREAMS; other++) {
        if (sim->done[other] < waited_step(sim, index, other))
            return;
    }
    const work *w = &sim->table.steps[index];
    sim->jobs[sim->job_count++] = (job){
        .step = index, .collective = w->collective, .left_us = w->us, .slack_us = 1e-12 * w->us};
    sim->links_changed = sim->links_changed || w->collective >= 0;
    sim->busy[stream] = true;
    sim->times[index].begin_us = sim->now_us;
}

static void end_job(simulator *sim, const job *ended)
{
    const mics_stream stream = sim->list->steps[ended->step].stream;
    sim->busy[stream] = false;
    sim->done[stream] = ended->step;
    sim->next[stream] = sim->following[ended->step];
    sim->times[ended->step].end_us = sim->now_us;
    sim->links_changed = sim->links_changed || ended->collective >= 0;
}

static bool is_consistent(const simulator *sim, double step_us, int32_t jobs_before)
{
    int32_t jobs[MICS_STREAMS] = {0};
    for (int32_t i = 0; i < sim->job_count; i++)
        jobs[sim->list->steps[sim->jobs[i].step].stream]++;
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        if (jobs[stream] != (sim->busy[stream] ? 1 : 0))
            return false;
    }
    return step_us >= 0 && sim->job_count < jobs_before;
}

// Lets time pass until the first job ends, and ends it and those that end with it.
static void advance(simulator *sim)
{
    double step_us = INFINITY;
    for (int32_t i = 0; i < sim->job_count; i++)
        step_us = fmin(step_us, sim->jobs[i].left_us / sim->jobs[i].rate);
    const int32_t count = sim->job_count;
    sim->job_count = 0;
    sim->now_us += step_us;
    for (int32_t i = 0; i < count; i++) {
        job j = sim->jobs[i];
        const bool ends = j.left_us / j.rate <= step_us;
        j.left_us -= step_us * j.rate;
        if (ends || j.left_us <= j.slack_us)
            end_job(sim, &j);
        else
            sim->jobs[sim->job_count++] = j;
    }
    MICS_ASSERT(is_consistent(sim, step_us, count));
}

static mics_status check_end(const simulator *sim)
{
    for (int stream = 0; stream < MICS_STREAMS; stream++) {
        const int32_t index = sim->next[stream];
        if (index < 0)
            continue;
        const mics_step *step = &sim->list->steps[index];
        return mics_fail(MICS_ERR_INVALID,
                         "stream %s: step %d (%s) waits for ever; the schedule's steps wait for "
                         "each other",
                         mics_stream_text((mics_stream)stream), (int)index,
                         mics_step_text(step->kind, step->stage));
    }
    return MICS_OK;
}

mics_status clock_run(simulator *sim)
{
    sim->links_changed = true;
    for (;;) {
        for (int stream = 0; stream < MICS_STREAMS; stream++)
            try_begin(sim, stream);
        if (sim->job_count == 0)
            return check_end(sim);
        share_out(sim);
        advance(sim);
    }
}
