// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// How what runs at once shares links and cores. See simulate.h for the rules.
#include "plan/simulate/internal.h"
#include <math.h>

// ---- links ----

// Each member of a collective has its part of what its whole node sends for it.
static void load_links(simulator *sim)
{
    for (int32_t t = 0; t < sim->cluster->tier_count; t++) {
        sim->loads[t] = 0;
        for (int32_t i = 0; i < sim->job_count; i++) {
            if (sim->jobs[i].collective >= 0)
                sim->loads[t] += sim->table.collectives[sim->jobs[i].collective].share[t];
        }
    }
}

// Of the tiers that it uses the most crowded one.
static double link_rate(const simulator *sim, const collective *c)
{
    double crowd = 1;
    for (int32_t t = 0; t < sim->cluster->tier_count; t++) {
        if (c->share[t] > 0 && sim->loads[t] > crowd)
            crowd = sim->loads[t];
    }
    return 1 / crowd;
}

// ---- computation ----

static double compute_rate(const simulator *sim)
{
    double slowdown = 0;
    for (int32_t i = 0; i < sim->job_count; i++) {
        if (sim->jobs[i].collective >= 0)
            slowdown += sim->table.collectives[sim->jobs[i].collective].use.slowdown;
    }
    return 1 / (1 + slowdown);
}

// ---- cores ----

// Threads of a job that want cores, on all ranks that it stands for.
static double threads_of(const simulator *sim, const job *j)
{
    const double ranks = mics_mesh_world(&sim->schedule->spec.mesh);
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
    const double level = fair_share(sim);
    for (int32_t i = 0; i < sim->job_count; i++) {
        job *j = &sim->jobs[i];
        if (j->cores > level)
            j->rate *= level / j->cores;
    }
}

// Who sends and receives beside computation waits for a core, and is late.
static void set_rate(const simulator *sim, job *j)
{
    if (j->collective < 0) {
        j->rate = compute_rate(sim);
        j->cores = 1;
        return;
    }
    const collective *c = &sim->table.collectives[j->collective];
    if (sim->links_changed)
        j->link_rate = link_rate(sim, c);
    j->rate = j->link_rate * (sim->busy[MICS_STREAM_COMPUTE] ? 1 / (1 + c->late) : 1);
    j->cores = j->rate * c->cores;
}

void share_out(simulator *sim)
{
    if (sim->links_changed)
        load_links(sim);
    for (int32_t i = 0; i < sim->job_count; i++)
        set_rate(sim, &sim->jobs[i]);
    if (sim->cluster->cores > 0)
        share_cores(sim);
    sim->links_changed = false;
}
