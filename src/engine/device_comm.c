// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The collectives of a schedule on a device's memory, enqueued in place. Runs on the communication threads.
//
// Numbers travel as they are held. Where gradients of a micro-step have two bytes, each member sends each
// other its block, and the owner adds them in fp32: one rounding a hop, where a ring would round every
// partial sum.
#include "engine/engine_internal.h"

static mics_status collective(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                              mics_comm_call_kind kind, mics_dtype dtype, void *buffer)
{
    const mics_comm_call call = {
        .kind = kind,
        .ring = ring,
        .buffer = buffer,
        .incoming = kind == MICS_COMM_CALL_ALL_TO_ALL ? engine->wire[step->stream] : NULL,
        .block_elems = step->block_elems,
        .dtype = dtype,
    };
    return mics_comm_collective(engine->spec.comm, &call);
}

// Elements before the part of a buffer that equal local ranks exchange, in two-stage collectives: the ranks of
// a node own one such part each.
static int64_t part_of_node(const mics_engine *engine, const mics_step *step)
{
    return step->block_elems * engine->rings[step->group].group.size *
           engine->rings[MICS_GROUP_NODE].own_block;
}

static void copy_elems(const mics_engine *engine, mics_stream stream, void *to, const void *from,
                       int64_t elems, size_t elem_bytes)
{
    engine->device->ops->copy(engine->device->ctx, (int32_t)stream, to, from,
                              (size_t)elems * elem_bytes);
}

static mics_status gather(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    const int64_t shard =
        engine->schedule->padded_elems[step->unit] / engine->schedule->sharding[step->unit].params;
    void *slot = elem_at(engine, engine->gather, engine->map.param_slots[step->uses[0].param_slot]);
    if (step->group != MICS_GROUP_NODE)
        copy_elems(engine, step->stream,
                   elem_at(engine, slot, shard * engine->rings[MICS_GROUP_PARAMS].own_block),
                   shard_at(engine, step->unit), shard, engine->elem_bytes);
    if (step->kind == MICS_STEP_GATHER_ACROSS)
        slot = elem_at(engine, slot, part_of_node(engine, step));
    return collective(engine, step, ring, MICS_COMM_CALL_ALL_GATHER, engine->dtype, slot);
}

// Sums this rank's block over the group where it lies.
static mics_status reduce_inside(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                 void *slot)
{
    if (!step->direct)
        return collective(engine, step, ring, MICS_COMM_CALL_REDUCE_SCATTER, MICS_DTYPE_FP32, slot);
    const mics_op_place at = place_on(engine, step->stream);
    void *own = elem_at(engine, slot, engine->rings[step->group].own_block * step->block_elems);
    MICS_TRY(collective(engine, step, ring, MICS_COMM_CALL_ALL_TO_ALL, engine->dtype, slot));
    engine->ops->sum_blocks_rounded(&at, own, own, engine->wire[step->stream], ring->group.size - 1,
                                    step->block_elems, step->block_elems);
    return MICS_OK;
}

static mics_status reduce(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    void *slot = elem_at(engine, engine->reduce, engine->map.grad_slots[step->uses[0].grad_slot]);
    float *accumulator = engine->grads + engine->map.grads[step->unit];
    const mics_op_place at = place_on(engine, step->stream);
    const bool add = step->uses[0].accumulate;
    if (step->kind == MICS_STEP_REDUCE_INSIDE)
        return reduce_inside(engine, step, ring, slot);
    if (step->group == MICS_GROUP_GRADS_ACROSS)
        slot = elem_at(engine, slot, part_of_node(engine, step));
    void *own = elem_at(engine, slot, engine->rings[step->group].own_block * step->block_elems);
    if (step->direct) {
        MICS_TRY(collective(engine, step, ring, MICS_COMM_CALL_ALL_TO_ALL, engine->dtype, slot));
        engine->ops->sum_blocks(&at, accumulator, own, engine->wire[step->stream],
                                ring->group.size - 1, step->block_elems, step->block_elems, add);
        return MICS_OK;
    }
    MICS_TRY(collective(engine, step, ring, MICS_COMM_CALL_REDUCE_SCATTER, MICS_DTYPE_FP32, slot));
    if (add)
        engine->ops->accumulate(&at, accumulator, own, step->block_elems);
    else
        copy_elems(engine, step->stream, accumulator, own, step->block_elems, sizeof(float));
    return MICS_OK;
}

// The one place of a training step where the host waits for the device.
static mics_status agree(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    mics_agreement *mine = &engine->agreements[engine->rank];
    MICS_TRY(device_wait_step(engine, (int32_t)(step - engine->list->steps)));
    mine->loss = engine->host_sums->loss;
    mine->sum_squares = engine->host_sums->sum_squares;
    return mics_comm_all_gather(engine->spec.comm, ring, engine->agreements, step->block_bytes);
}

mics_status run_device_comm_step(mics_engine *engine, const mics_step *step)
{
    const group_ring *group = &engine->rings[step->group];
    char what[STEP_NAME_BYTES];
    name_step(engine, step, what, sizeof what);
    const mics_ring ring = {.group = group->group,
                            .block_of = group->block_of,
                            .channel = step->stream == MICS_STREAM_FAR ? 1 : 0,
                            .what = what};
    switch (step->kind) {
    case MICS_STEP_PUBLISH:
        return collective(engine, step, &ring, MICS_COMM_CALL_ALL_GATHER, engine->dtype,
                          shard_at(engine, step->unit));
    case MICS_STEP_GATHER_ACROSS:
    case MICS_STEP_GATHER:
        return gather(engine, step, &ring);
    case MICS_STEP_REDUCE_INSIDE:
    case MICS_STEP_REDUCE:
        return reduce(engine, step, &ring);
    case MICS_STEP_SCATTER:
        return collective(engine, step, &ring, MICS_COMM_CALL_REDUCE_SCATTER, MICS_DTYPE_FP32,
                          engine->grads + engine->map.grads[step->unit]);
    case MICS_STEP_ALL_REDUCE:
        return collective(engine, step, &ring, MICS_COMM_CALL_ALL_REDUCE, MICS_DTYPE_FP32,
                          owned_grads(engine, step->unit));
    default: // AGREE
        return agree(engine, step, &ring);
    }
}
