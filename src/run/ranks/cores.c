// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Who may run where, as the machine's ranks tell each other.
#include "cores.h"
#include "mics/core/device.h"
#include <unistd.h>

static int32_t sharers_of(const cpu_set_t *masks, int32_t ranks, size_t core)
{
    int32_t sharers = 0;
    for (int32_t rank = 0; rank < ranks; rank++)
        sharers += CPU_ISSET(core, &masks[rank]) != 0;
    return sharers;
}

int32_t run_cores_share(const cpu_set_t *masks, int32_t ranks, int32_t rank)
{
    double share = 1e-6; // so that three thirds are one
    for (int32_t other = 0; other < ranks; other++) {
        if (CPU_COUNT(&masks[other]) == 0)
            return 0;
    }
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &masks[rank]))
            share += 1.0 / sharers_of(masks, ranks, core);
    }
    return share < 1 ? 1 : (int32_t)share;
}

// `masks` holds as many as there are ranks.
static mics_status share_masks(run_world *world, const mics_machine *machine, cpu_set_t *masks,
                               run_cores *cores_out)
{
    // Ranks are numbered node by node.
    const int32_t here = world->ranks_here, rank = world->first;
    const int32_t quota = machine->quota_cores < here ? 1 : machine->quota_cores / here;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t mine, all;
    CPU_ZERO(&mine);
    CPU_ZERO(&all);
    // More cores than the set holds: not known.
    if (sched_getaffinity(0, sizeof mine, &mine) != 0)
        CPU_ZERO(&mine);
    MICS_TRY(run_world_gather(world, &mine, sizeof mine, masks));
    const cpu_set_t *ours = masks + (rank - rank % here);
    const int32_t cores = run_cores_share(ours, here, rank % here);
    for (int32_t other = 0; other < here; other++)
        CPU_OR(&all, &all, &ours[other]);
    cores_out->own = cores < quota ? cores : quota;
    cores_out->bound = cores > 0 ? CPU_COUNT(&all) : 0;
    cores_out->machine = online < machine->quota_cores ? (int32_t)online : machine->quota_cores;
    return MICS_OK;
}

mics_status run_cores_read(run_world *world, mics_memory *memory, run_cores *cores_out)
{
    cpu_set_t *masks = NULL;
    mics_machine machine = {0};
    *cores_out = (run_cores){0};
    if (!world->mpi)
        return MICS_OK;
    mics_status mine = mics_machine_read(&machine);
    if (mine == MICS_OK)
        mine = MICS_NEW(memory, world->ranks, &masks);
    mics_status status = run_world_agree(world, mine);
    if (status == MICS_OK && mine == MICS_OK)
        status = share_masks(world, &machine, masks, cores_out);
    mics_free(memory, masks);
    return status;
}
