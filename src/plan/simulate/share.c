// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How what runs at once shares links and cores. See simulate.h for the rules.
#include "plan/simulate/internal.h"
#include <math.h>

// ---- links ----

static double *loads_of(const simulator *sim, int32_t rank)
{
    return sim->loads + (int64_t)(rank / sim->ranks_per_node) * MICS_CLUSTER_TIERS;
}

// Each member brings its part of what its whole node sends for the collective.
static void load_links(simulator *sim)
{
    const int32_t tiers = sim->cluster->tier_count;
    for (int32_t i = 0; i < sim->nodes * MICS_CLUSTER_TIERS; i++)
        sim->loads[i] = 0;
    for (int32_t i = 0; i < sim->job_count; i++) {
        const job *j = &sim->jobs[i];
        if (j->collective < 0)
            continue;
        const collective *c = &sim->table.collectives[j->collective];
        for (int32_t member = 0; member < j->members.size; member++) {
            double *loads = loads_of(sim, mics_group_rank(j->members, member));
            for (int32_t t = 0; t < tiers; t++)
                loads[t] += c->share[t] / sim->ranks_per_node;
        }
    }
}

// Of the tiers that it uses the most crowded one, on whatever node.
static double link_rate(const simulator *sim, const job *j)
{
    const collective *c = &sim->table.collectives[j->collective];
    double crowd = 1;
    for (int32_t member = 0; member < j->members.size; member++) {
        const double *loads = loads_of(sim, mics_group_rank(j->members, member));
        for (int32_t t = 0; t < sim->cluster->tier_count; t++) {
            if (c->share[t] > 0 && loads[t] > crowd)
                crowd = loads[t];
        }
    }
    return 1 / crowd;
}

// Who sends and receives beside computation waits for a core: of all members as many as compute.
static double beside_rate(const simulator *sim, const job *j)
{
    int32_t computing = 0;
    for (int32_t member = 0; member < j->members.size; member++) {
        const int32_t rank = mics_group_rank(j->members, member);
        computing += sim->clocks[rank].state[MICS_STREAM_COMPUTE] == STREAM_BUSY;
    }
    return 1 / (1 + sim->table.collectives[j->collective].late * computing / j->members.size);
}

// ---- computation ----

static double compute_rate(const simulator *sim, const job *j)
{
    const rank_clock *clock = &sim->clocks[j->members.first];
    double slowdown = 0;
    for (int stream = MICS_STREAM_COMPUTE + 1; stream < MICS_STREAMS; stream++) {
        if (clock->running[stream] >= 0)
            slowdown += sim->table.collectives[clock->running[stream]].use.slowdown;
    }
    return 1 / (1 + slowdown);
}

// ---- cores ----

// Threads of a job that want cores, on all ranks that it stands for.
static double threads_of(const simulator *sim, const job *j)
{
    const double ranks = (double)j->members.size * sim->stands_for;
    return j->collective < 0 ? ranks * sim->schedule->spec.batch.threads : ranks;
}

// The share of a core above which nobody gets: those that want less leave the rest to the others.
static double fair_share(const simulator *sim)
{
    double cores = sim->cluster->cores, level = 0;
    for (;;) {
        double left = cores, wanting = 0;
        bool content = true;
        for (int32_t i = 0; i < sim->job_count; i++) {
            const job *j = &sim->jobs[i];
            if (j->cores <= level)
                left -= threads_of(sim, j) * j->cores;
            else
                wanting += threads_of(sim, j);
        }
        if (wanting == 0)
            return INFINITY;
        const double higher = left / wanting;
        for (int32_t i = 0; i < sim->job_count && content; i++)
            content = sim->jobs[i].cores <= level || sim->jobs[i].cores > higher;
        level = higher;
        if (content)
            return level;
    }
}

static void share_cores(simulator *sim)
{
    const double most = fair_share(sim);
    for (int32_t i = 0; i < sim->job_count; i++) {
        job *j = &sim->jobs[i];
        if (j->cores > most)
            j->rate *= most / j->cores;
    }
}

void share_out(simulator *sim)
{
    if (sim->links_changed)
        load_links(sim);
    for (int32_t i = 0; i < sim->job_count; i++) {
        job *j = &sim->jobs[i];
        const bool computes = j->collective < 0;
        if (computes || sim->links_changed)
            j->link_rate = computes ? 1 : link_rate(sim, j);
        j->rate = computes ? compute_rate(sim, j) : j->link_rate * beside_rate(sim, j);
        j->cores = computes ? 1 : j->rate * sim->table.collectives[j->collective].cores;
    }
    if (sim->cluster->cores > 0)
        share_cores(sim);
    sim->links_changed = false;
}
