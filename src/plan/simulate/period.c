// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The mean step of local steps. Training steps in which the same steps of the list run take the same
// time, so each different one is simulated once: one without a meeting, and for each window its first
// meeting of the period and its last, in which the optimizer's states meet too where they ever do.
#include "mics/core/ledger.h"
#include "plan/simulate/simulate.h"

// ---- the mean ----

static void add_kind(mics_simulated_kind *mean, const mics_simulated_kind *kind, double share)
{
    mean->alone_us += share * kind->alone_us;
    mean->busy_us += share * kind->busy_us;
    mean->exposed_us += share * kind->exposed_us;
    mean->critical_us += share * kind->critical_us;
}

static void add_step(mics_simulation *mean, const mics_simulation *s, double share)
{
    mean->step_us += share * s->step_us;
    mean->compute_us += share * s->compute_us;
    mean->exposed_us += share * s->exposed_us;
    mean->overhead_us += share * s->overhead_us;
    mean->flops += share * s->flops;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        mean->stream_us[stream] += share * s->stream_us[stream];
    for (int tier = 0; tier < MICS_CLUSTER_TIERS; tier++)
        mean->tier_bytes[tier] += share * s->tier_bytes[tier];
    for (int i = 0; i < MICS_STEP_KINDS * MICS_STAGES; i++)
        add_kind(&mean->kinds[i / MICS_STAGES][i % MICS_STAGES],
                 &s->kinds[i / MICS_STAGES][i % MICS_STAGES], share);
    mean->sent = s->sent;
    mean->met = s->met;
}

// ---- the period ----

typedef struct period {
    mics_memory *memory;
    const mics_schedule *schedule;
    const mics_cluster *cluster;
    mics_simulate_options options;
    mics_simulation mean;
} period;

// `count` training steps that are all like this one.
static mics_status add_steps(period *p, int64_t number, int32_t count)
{
    mics_simulation *one = NULL;
    if (count == 0)
        return MICS_OK;
    p->options.number = number;
    MICS_TRY(mics_simulate(p->memory, p->schedule, p->cluster, &p->options, &one));
    add_step(&p->mean, one, (double)count / mics_schedule_period(p->schedule));
    mics_simulation_close(one);
    return MICS_OK;
}

// The first training step in which the units of a window meet.
static int64_t first_meeting(const mics_schedule *schedule, int32_t window)
{
    int32_t unit = 0;
    while (schedule->meetings[unit].window != window)
        unit++;
    const int32_t offset = schedule->meetings[unit].offset;
    return 1 + (offset > 0 ? offset : schedule->spec.outer.every);
}

mics_status mics_simulate_period(mics_memory *memory, const mics_schedule *schedule,
                                 const mics_cluster *cluster, const mics_simulate_options *options,
                                 mics_simulation **mean_out)
{
    const mics_outer *outer = &schedule->spec.outer;
    const int32_t windows = mics_schedule_windows(schedule);
    const int32_t rounds = outer->moments_every > 0 ? outer->moments_every : 1;
    period p = {.memory = memory, .schedule = schedule, .cluster = cluster};
    p.options = options != NULL ? *options : (mics_simulate_options){0};
    p.mean.memory = memory;
    MICS_TRY(add_steps(&p, 1, mics_schedule_period(schedule) - windows * rounds));
    for (int32_t window = 0; window < windows; window++) {
        const int64_t first = first_meeting(schedule, window);
        MICS_TRY(add_steps(&p, first, rounds - 1));
        MICS_TRY(add_steps(&p, first + (int64_t)outer->every * (rounds - 1), 1));
    }
    MICS_TRY(MICS_NEW(memory, 1, mean_out));
    **mean_out = p.mean;
    return MICS_OK;
}
