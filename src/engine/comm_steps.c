// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The collectives of a schedule, each one call in place. Runs on the communication thread.
#include "engine/engine_internal.h"
#include <stdio.h>
#include <string.h>

static float *param_shard(const mics_engine *engine, int32_t unit)
{
    return engine->params + engine->map.params[unit];
}

// A block of a slot that the ranks of a node fill together, in the two-stage collectives.
static float *node_block(const mics_engine *engine, float *slot, const mics_step *step)
{
    const int64_t elems =
        (int64_t)(step->block_bytes / sizeof(float)) * engine->rings[step->group].group.size;
    return slot + engine->rings[MICS_GROUP_NODE].own_block * elems;
}

// In one stage over the partition group; or between nodes, which fills this rank's block of the node,
// and then inside the node, all in place.
static mics_status gather(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    const int64_t shard =
        engine->schedule->padded_elems[step->unit] / engine->schedule->spec.mesh.sharding.params;
    float *slot = engine->gather + engine->map.param_slots[step->uses[0].param_slot];
    float *buffer = step->kind == MICS_STEP_GATHER_ACROSS ? node_block(engine, slot, step) : slot;
    if (step->group != MICS_GROUP_NODE)
        memcpy(slot + engine->rings[MICS_GROUP_PARAMS].own_block * shard,
               param_shard(engine, step->unit), (size_t)shard * sizeof(float));
    return mics_comm_all_gather(engine->spec.comm, ring, buffer, step->block_bytes);
}

// The same backwards: inside the node, which leaves its sum in this rank's block of the node, then between nodes.
static mics_status reduce(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    float *slot = engine->reduce + engine->map.grad_slots[step->uses[0].grad_slot];
    float *accumulator = engine->grads + engine->map.grads[step->unit];
    const int64_t elems = (int64_t)(step->block_bytes / sizeof(float));
    if (step->kind == MICS_STEP_REDUCE_INSIDE)
        return mics_comm_reduce_scatter(engine->spec.comm, ring, slot, elems);
    float *buffer = step->group == MICS_GROUP_GRADS_ACROSS ? node_block(engine, slot, step) : slot;
    MICS_TRY(mics_comm_reduce_scatter(engine->spec.comm, ring, buffer, elems));
    const float *own = buffer + engine->rings[step->group].own_block * elems;
    if (step->accumulate)
        engine->spec.kernels->accumulate(accumulator, own, elems);
    else
        memcpy(accumulator, own, step->block_bytes);
    return MICS_OK;
}

mics_status run_comm_step(mics_engine *engine, const mics_step *step)
{
    const group_ring *group = &engine->rings[step->group];
    char what[160];
    snprintf(what, sizeof what, "%s of %s over the %s", mics_step_kind_text(step->kind),
             step->unit >= 0 ? engine->schedule->spec.model->units[step->unit].name
                             : "loss and norm",
             mics_group_kind_text(step->group));
    const mics_ring ring = {.group = group->group, .block_of = group->block_of, .what = what};
    const int64_t elems = (int64_t)(step->block_bytes / sizeof(float));
    mics_comm *comm = engine->spec.comm;
    switch (step->kind) {
    case MICS_STEP_GATHER_ACROSS:
    case MICS_STEP_GATHER:
        return gather(engine, step, &ring);
    case MICS_STEP_REDUCE_INSIDE:
    case MICS_STEP_REDUCE:
        return reduce(engine, step, &ring);
    case MICS_STEP_SCATTER:
        return mics_comm_reduce_scatter(comm, &ring, engine->grads + engine->map.grads[step->unit],
                                        elems);
    case MICS_STEP_ALL_REDUCE:
        return mics_comm_all_reduce(comm, &ring, owned_grads(engine, step->unit),
                                    elems * group->group.size);
    case MICS_STEP_PUBLISH:
        return mics_comm_all_gather(comm, &ring, param_shard(engine, step->unit),
                                    step->block_bytes);
    default: // AGREE
        return mics_comm_all_gather(comm, &ring, engine->agreements, step->block_bytes);
    }
}
