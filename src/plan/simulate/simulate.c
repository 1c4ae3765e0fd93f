// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A simulation from outside: what is asked for is checked, everything taken, run and summed up.
#include "plan/simulate/simulate.h"
#include "mics/log.h"
#include "plan/simulate/internal.h"

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
            (int)mesh->ranks_per_node, cluster->name, (int)per_node,
            (int)(mics_mesh_world(mesh) / per_node), (int)per_node);
    return mics_cluster_ranks(cluster, mics_mesh_world(mesh) / per_node, &ranks);
}

// ---- what a simulation needs ----

// Streams pass over what is not due.
static void link_steps(simulator *sim)
{
    int32_t newest[MICS_STREAMS];
    for (int stream = 0; stream < MICS_STREAMS; stream++)
        sim->next[stream] = sim->done[stream] = newest[stream] = -1;
    for (int32_t i = 0; i < sim->list->count; i++) {
        const mics_stream stream = sim->list->steps[i].stream;
        sim->runs[i] = newest[stream];
        if (!mics_step_is_due(&sim->list->steps[i], sim->number))
            continue;
        sim->runs[i] = i;
        sim->previous[i] = newest[stream];
        sim->following[i] = -1;
        if (newest[stream] >= 0)
            sim->following[newest[stream]] = i;
        else
            sim->next[stream] = i;
        newest[stream] = i;
    }
}

static mics_status open_simulator(simulator *sim)
{
    const size_t steps = (size_t)sim->list->count;
    void *block = NULL;
    MICS_TRY(mics_alloc(sim->memory, MICS_MEM_HOST, 3 * steps * sizeof(int32_t), &block));
    sim->following = block;
    sim->previous = sim->following + steps;
    sim->runs = sim->previous + steps;
    link_steps(sim);
    MICS_TRY(mics_alloc(sim->memory, MICS_MEM_HOST, steps * sizeof(mics_step_time), &block));
    sim->times = block;
    return work_open(sim->memory, sim->schedule, sim->cluster, sim->options, &sim->table);
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
    sim.number = sim.options->number > 0 ? sim.options->number : 1;
    mics_simulation *simulation = NULL;
    mics_status status = MICS_OK;
    void *block = NULL;
    MICS_TRY(check_cluster(schedule, cluster));
    if ((unsigned)sim.options->math >= MICS_MATHS)
        return mics_fail(MICS_ERR_INVALID, "GEMMs compute in fp32, tf32, bf16 or fp16");
    MICS_TRY_OUT(open_simulator(&sim));
    MICS_TRY_OUT(clock_run(&sim));
    MICS_TRY_OUT(mics_alloc(memory, MICS_MEM_HOST, sizeof(mics_simulation), &block));
    simulation = block;
    *simulation = (mics_simulation){.memory = memory, .steps = sim.list->count, .times = sim.times};
    fill_result(&sim, simulation);
    *simulation_out = simulation;
out:
    if (status != MICS_OK)
        mics_free(memory, sim.times);
    mics_free(memory, sim.following);
    work_close(&sim.table);
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
