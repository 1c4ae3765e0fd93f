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
    if (step->stage != MICS_STAGE_INTRA)
        copy_elems(engine, step->stream,
                   elem_at(engine, slot,
                           shard * engine->rings[MICS_AXIS_PARTITION][MICS_SCOPE_WHOLE].own_block),
                   shard_at(engine, step->unit), shard, engine->elem_bytes);
    slot = elem_at(engine, slot, step_share_at(engine, step, step->block_elems));
    return collective(engine, step, ring, MICS_COMM_CALL_ALL_GATHER, engine->dtype, slot);
}

// Sums this rank's block over the group where it lies.
static mics_status reduce_inside(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                 void *slot)
{
    if (step->algorithm != MICS_ALGORITHM_DIRECT)
        return collective(engine, step, ring, MICS_COMM_CALL_REDUCE_SCATTER, MICS_DTYPE_FP32, slot);
    const mics_op_place at = place_on(engine, step->stream);
    void *own = elem_at(engine, slot, ring_of(engine, step)->own_block * step->block_elems);
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
    if (step->stage == MICS_STAGE_INTRA)
        return reduce_inside(engine, step, ring, slot);
    slot = elem_at(engine, slot, step_share_at(engine, step, step->block_elems));
    void *own = elem_at(engine, slot, ring_of(engine, step)->own_block * step->block_elems);
    if (step->algorithm == MICS_ALGORITHM_DIRECT) {
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

// ---- once a step ----

static bool is_publication(const mics_step *step)
{
    return step->kind == MICS_STEP_PARAM_SYNC;
}

// What a step is about of one unit, whose block is `block_elems`.
static void *boundary_at(const mics_engine *engine, const mics_step *step, int32_t unit,
                         int64_t block_elems)
{
    const int64_t share = step_share_at(engine, step, block_elems);
    if (is_publication(step))
        return elem_at(engine, shard_at(engine, unit), share);
    if (step->kind == MICS_STEP_ALL_REDUCE)
        return owned_grads(engine, unit) + share;
    return engine->grads + engine->map.grads[unit] + share;
}

// ---- a second hop in bf16 ----
//
// The image of a buffer's blocks stands in the wire's memory, what the others send behind it.

static mics_op_place place_in_bf16(const mics_engine *engine, const mics_step *step)
{
    mics_op_place at = place_on(engine, step->stream);
    at.dtype = MICS_DTYPE_BF16;
    return at;
}

static char *image_block(const mics_engine *engine, const mics_step *step, int64_t block)
{
    return engine->wire[step->stream] +
           (size_t)(block * step->block_elems) * mics_dtype_bytes(MICS_DTYPE_BF16);
}

// This rank's block becomes the sum: its own fp32 numbers and what the others send, each rounded once.
static mics_status sum_rounded(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                               float *buffer)
{
    const mics_op_place at = place_in_bf16(engine, step);
    const int32_t size = ring->group.size;
    const int64_t elems = step->block_elems;
    char *image = image_block(engine, step, 0), *incoming = image_block(engine, step, size);
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_TO_ALL,
                                 .ring = ring,
                                 .buffer = image,
                                 .incoming = incoming,
                                 .block_elems = elems,
                                 .dtype = MICS_DTYPE_BF16};
    engine->ops->round(&at, image, buffer, size * elems);
    MICS_TRY(mics_comm_collective(engine->spec.comm, &call));
    engine->ops->sum_blocks(&at, buffer + ring_of(engine, step)->own_block * elems, incoming,
                            image_block(engine, step, size + 1), size - 2, elems, elems, true);
    return MICS_OK;
}

// All ranks, the owner too, end with the rounded sums.
static mics_status gather_rounded(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                  float *buffer)
{
    const mics_op_place at = place_in_bf16(engine, step);
    const int32_t own = ring_of(engine, step)->own_block;
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_GATHER,
                                 .ring = ring,
                                 .buffer = image_block(engine, step, 0),
                                 .block_elems = step->block_elems,
                                 .dtype = MICS_DTYPE_BF16};
    engine->ops->round(&at, image_block(engine, step, own), buffer + own * step->block_elems,
                       step->block_elems);
    MICS_TRY(mics_comm_collective(engine->spec.comm, &call));
    engine->ops->widen(&at, buffer, image_block(engine, step, 0),
                       ring->group.size * step->block_elems);
    return MICS_OK;
}

static mics_status run_rounded(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                               float *buffer)
{
    if (mics_step_sums(step))
        MICS_TRY(sum_rounded(engine, step, ring, buffer));
    if (mics_step_sums_to_all(step) || step->stage == MICS_STAGE_BACK)
        return gather_rounded(engine, step, ring, buffer);
    return MICS_OK;
}

static mics_status run_on(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                          void *buffer)
{
    if (step->dtype.sent != step->dtype.held)
        return run_rounded(engine, step, ring, buffer);
    const mics_dtype dtype = is_publication(step) ? engine->dtype : MICS_DTYPE_FP32;
    const mics_comm_call_kind kind = mics_step_sums_to_all(step) ? MICS_COMM_CALL_ALL_REDUCE
                                     : mics_step_sums(step)      ? MICS_COMM_CALL_REDUCE_SCATTER
                                                                 : MICS_COMM_CALL_ALL_GATHER;
    return collective(engine, step, ring, kind, dtype, buffer);
}

// Copies one block of every unit into its place in the message, or back.
static void copy_block(const mics_engine *engine, const mics_step *step, char *message,
                       int32_t block, bool back)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(engine->schedule, step, &count);
    const size_t bytes = is_publication(step) ? engine->elem_bytes : sizeof(float);
    char *at = message + (size_t)(block * step->block_elems) * bytes;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elems = step_unit_elems(engine, step, units[i]);
        char *own =
            (char *)boundary_at(engine, step, units[i], elems) + (size_t)(block * elems) * bytes;
        copy_elems(engine, step->stream, back ? own : at, back ? at : own, elems, bytes);
        at += (size_t)elems * bytes;
    }
}

// As run_joined of comm_steps.c.
static mics_status run_joined(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    const group_ring *group = ring_of(engine, step);
    const bool sums = mics_step_sums(step);
    const bool gathers = !sums || mics_step_sums_to_all(step);
    char *message = step_message(engine, step);
    for (int32_t block = 0; block < group->group.size; block++) {
        if (sums || block == group->own_block)
            copy_block(engine, step, message, block, false);
    }
    MICS_TRY(run_on(engine, step, ring, message));
    for (int32_t block = 0; block < group->group.size; block++) {
        if (block == group->own_block ? !is_publication(step) : gathers)
            copy_block(engine, step, message, block, true);
    }
    return MICS_OK;
}

static mics_status run_boundary(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    if (step->member_count > 0)
        return run_joined(engine, step, ring);
    return run_on(engine, step, ring, boundary_at(engine, step, step->unit, step->block_elems));
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
    const group_ring *group = ring_of(engine, step);
    char what[STEP_NAME_BYTES];
    name_step(engine, step, what, sizeof what);
    const mics_ring ring = {.group = group->group,
                            .block_of = group->block_of,
                            .channel = step->stream == MICS_STREAM_FAR ? 1 : 0,
                            .what = what};
    switch (step->kind) {
    case MICS_STEP_GATHER:
        return gather(engine, step, &ring);
    case MICS_STEP_REDUCE:
        return reduce(engine, step, &ring);
    case MICS_STEP_AGREE:
        return agree(engine, step, &ring);
    default:
        return run_boundary(engine, step, &ring);
    }
}
