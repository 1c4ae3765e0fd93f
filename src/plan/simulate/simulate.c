// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A simulation from outside: what is asked for is checked, everything taken, run and summed up.
#include "mics/simulate.h"
#include "mics/log.h"
#include "plan/simulate/internal.h"

// What can still be called the same machine; times stay finite.
static const double most_jitter = 5, most_factor = 1e6;

// ---- checks ----

static mics_status check_cluster(const mics_schedule *schedule, const mics_cluster *cluster)
{
    const mics_mesh *mesh = &schedule->spec.mesh;
    const int32_t per_node = mics_cluster_ranks_per_node(cluster);
    int32_t ranks = 0;
    if (schedule->lists[MICS_PHASE_TRAIN].count == 0)
        return mics_fail(MICS_ERR_INVALID,
                         "the schedule is for evaluation only: there is no step to simulate");
    if (mesh->ranks_per_node != per_node)
        return mics_fail(
            MICS_ERR_INVALID,
            "the schedule has %d ranks a node, and cluster %s %d: lay the mesh out for "
            "%d nodes of %d",
            (int)mesh->ranks_per_node, cluster->name, (int)per_node, (int)(mesh->ranks / per_node),
            (int)per_node);
    return mics_cluster_ranks(cluster, mesh->ranks / per_node, &ranks);
}

static mics_status check_options(const mics_schedule *schedule,
                                 const mics_simulate_options *options)
{
    if ((unsigned)options->math >= MICS_MATHS)
        return mics_fail(MICS_ERR_INVALID, "products compute in fp32, tf32, bf16 or fp16");
    if (!(options->jitter >= 0 && options->jitter <= most_jitter) || options->straggler_count < 0)
        return mics_fail(MICS_ERR_INVALID, "jitter %g (0 to %g) and %d stragglers (0 or more)",
                         options->jitter, most_jitter, (int)options->straggler_count);
    for (int32_t i = 0; i < options->straggler_count; i++) {
        const mics_straggler *s = &options->stragglers[i];
        if (s->rank < 0 || s->rank >= schedule->spec.mesh.ranks ||
            !(s->factor > 0 && s->factor <= most_factor))
            return mics_fail(
                MICS_ERR_INVALID, "straggler %d: rank %d (0 to %d) takes %g times (above 0, to %g)",
                (int)i, (int)s->rank, (int)schedule->spec.mesh.ranks - 1, s->factor, most_factor);
    }
    return MICS_OK;
}

// ---- what a simulation needs ----

static mics_status take(simulator *sim, size_t count, size_t bytes, void **block_out)
{
    return mics_alloc(sim->memory, MICS_MEM_HOST, count * bytes, block_out);
}

static mics_status link_steps(simulator *sim, int32_t first_out[MICS_STREAMS])
{
    const size_t steps = (size_t)sim->list->count;
    int32_t newest[MICS_STREAMS];
    void *block = NULL;
    MICS_TRY(take(sim, 2 * steps, sizeof(int32_t), &block));
    sim->next = block;
    sim->previous = sim->next + steps;
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        first_out[stream] = newest[stream] = -1;
    for (int32_t i = 0; i < sim->list->count; i++) {
        const mics_stream stream = sim->list->steps[i].stream;
        sim->previous[i] = newest[stream];
        sim->next[i] = -1;
        if (newest[stream] >= 0)
            sim->next[newest[stream]] = i;
        else
            first_out[stream] = i;
        newest[stream] = i;
    }
    return MICS_OK;
}

static mics_status open_clocks(simulator *sim)
{
    const size_t ranks = (size_t)sim->ranks;
    int32_t first[MICS_STREAMS];
    void *block = NULL;
    MICS_TRY(link_steps(sim, first));
    MICS_TRY(take(sim, ranks, sizeof(rank_clock), &block));
    sim->clocks = block;
    for (size_t rank = 0; rank < ranks; rank++) {
        for (int stream = 0; stream < MICS_STREAMS; stream++) {
            sim->clocks[rank].next[stream] = first[stream];
            sim->clocks[rank].done[stream] = sim->clocks[rank].running[stream] = -1;
        }
    }
    MICS_TRY(take(sim, ranks * MICS_STREAMS, sizeof(int32_t), &block));
    sim->arrived = block;
    MICS_TRY(take(sim, 2 * ranks * MICS_STREAMS, sizeof(job), &block));
    sim->jobs = block;
    MICS_TRY(take(sim, (size_t)sim->nodes * MICS_CLUSTER_TIERS, sizeof(double), &block));
    sim->loads = block;
    MICS_TRY(take(sim, ranks * (size_t)sim->list->count, sizeof(mics_step_time), &block));
    sim->times = block;
    return MICS_OK;
}

static mics_status open_stragglers(simulator *sim)
{
    const mics_simulate_options *options = sim->options;
    void *block = NULL;
    if (options->straggler_count == 0)
        return MICS_OK;
    MICS_TRY(take(sim, (size_t)sim->ranks, sizeof(double), &block));
    sim->slowness = block;
    for (int32_t rank = 0; rank < sim->ranks; rank++)
        sim->slowness[rank] = 1;
    for (int32_t i = 0; i < options->straggler_count; i++)
        sim->slowness[options->stragglers[i].rank] *= options->stragglers[i].factor;
    return MICS_OK;
}

static void size_simulator(simulator *sim)
{
    const mics_mesh *mesh = &sim->schedule->spec.mesh;
    const mics_simulate_options *options = sim->options;
    const bool each = options->every_rank || options->jitter > 0 || options->straggler_count > 0;
    sim->ranks = each ? mesh->ranks : 1;
    sim->ranks_per_node = each ? mesh->ranks_per_node : 1;
    sim->nodes = sim->ranks / sim->ranks_per_node;
    sim->stands_for = mesh->ranks / sim->ranks;
}

static mics_status open_simulator(simulator *sim)
{
    size_simulator(sim);
    MICS_TRY(open_clocks(sim));
    MICS_TRY(open_stragglers(sim));
    return work_open(sim->memory, sim->schedule, sim->cluster, sim->options, &sim->table);
}

// The times stay with the simulation.
static void close_simulator(simulator *sim)
{
    void *const blocks[] = {sim->next,    sim->slowness, sim->clocks,
                            sim->arrived, sim->jobs,     sim->loads};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        mics_free(sim->memory, blocks[i]);
    work_close(&sim->table);
}

// ---- from outside ----

mics_status mics_simulate(mics_memory *memory, const mics_schedule *schedule,
                          const mics_cluster *cluster, const mics_simulate_options *options,
                          mics_simulation **simulation_out)
{
    static const mics_simulate_options none = {0};
    simulator sim = {.memory = memory,
                     .schedule = schedule,
                     .list = &schedule->lists[MICS_PHASE_TRAIN],
                     .cluster = cluster,
                     .options = options != NULL ? options : &none};
    mics_simulation *simulation = NULL;
    mics_status status = MICS_OK;
    void *block = NULL;
    MICS_TRY(check_cluster(schedule, cluster));
    MICS_TRY(check_options(schedule, sim.options));
    MICS_TRY_OUT(open_simulator(&sim));
    MICS_TRY_OUT(clock_run(&sim));
    MICS_TRY_OUT(take(&sim, 1, sizeof(mics_simulation), &block));
    simulation = block;
    *simulation = (mics_simulation){
        .memory = memory, .ranks = sim.ranks, .steps = sim.list->count, .times = sim.times};
    fill_result(&sim, simulation);
    *simulation_out = simulation;
out:
    if (status != MICS_OK)
        mics_free(memory, sim.times);
    close_simulator(&sim);
    return status;
}

void mics_simulation_close(mics_simulation *simulation)
{
    if (simulation == NULL)
        return;
    mics_memory *memory = simulation->memory;
    mics_free(memory, simulation->times);
    mics_free(memory, simulation);
}

const mics_step_time *mics_simulation_times(const mics_simulation *simulation, int32_t rank)
{
    const int64_t at = simulation->ranks == 1 ? 0 : rank;
    return simulation->times + at * simulation->steps;
}
