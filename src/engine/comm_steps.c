// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The collectives of a schedule, in place. Runs on the communication threads.
//
// Packed numbers. A gather packs this rank's shard into the second half of the slot, where all shards
// come together, and unpacks them over the whole slot in the end. A packed reduction sends each
// member its block directly and adds what comes in fp32, so each contribution is rounded once. A rank
// sends as many blocks as in a ring; but where a group has k members a node, k of them cross to each
// other node where a ring crosses once. In two stages only equal local ranks meet across nodes.
#include "engine/engine_internal.h"
#include <stdio.h>
#include <string.h>

// Channel of a stream's collectives.
static int32_t stream_channel(mics_stream stream)
{
    return stream == MICS_STREAM_FAR ? 1 : 0;
}

// ---- packing ----

static void pack(const mics_engine *engine, mics_wire wire, void *packed, const float *values,
                 float *residual, int64_t elems)
{
    if (wire == MICS_WIRE_BF16)
        engine->spec.kernels->pack_bf16(packed, values, elems);
    else if (wire == MICS_WIRE_INT8)
        engine->spec.kernels->pack_int8(packed, values, residual, elems);
    else
        memcpy(packed, values, (size_t)elems * sizeof(float));
}

static void add_packed(const mics_engine *engine, mics_wire wire, float *sum, const void *packed,
                       int64_t elems)
{
    if (wire == MICS_WIRE_BF16)
        engine->spec.kernels->add_bf16(sum, packed, elems);
    else
        engine->spec.kernels->add_int8(sum, packed, elems);
}

// Sums this rank's block of `buffer` over the group; the other blocks stay as they are.
static mics_status reduce_packed(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                 float *buffer, float *residual)
{
    const group_ring *group = &engine->rings[step->group];
    const int32_t size = group->group.size, index = group->group.index;
    const int64_t elems = step->block_elems;
    char *outgoing = engine->wire[step->stream], *incoming = outgoing + step->block_bytes;
    float *own = buffer + group->own_block * elems;
    for (int32_t hop = 1; hop < size; hop++) {
        const int32_t to = (index + hop) % size, from = (index + size - hop) % size;
        const int64_t at = group->block_of[to] * elems;
        pack(engine, step->wire, outgoing, buffer + at, residual != NULL ? residual + at : NULL,
             elems);
        const mics_exchange exchange = {.to = mics_group_rank(group->group, to),
                                        .from = mics_group_rank(group->group, from),
                                        .send = outgoing,
                                        .recv = incoming,
                                        .bytes = step->block_bytes,
                                        .reduce = MICS_REDUCE_COPY,
                                        .channel = ring->channel,
                                        .what = ring->what};
        MICS_TRY(mics_comm_exchange(engine->spec.comm, &exchange));
        add_packed(engine, step->wire, own, incoming, elems);
    }
    return MICS_OK;
}

static mics_status reduce_scatter(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                  float *buffer, float *residual)
{
    if (step->wire != MICS_WIRE_FP32)
        return reduce_packed(engine, step, ring, buffer, residual);
    return mics_comm_reduce_scatter(engine->spec.comm, ring, buffer, step->block_elems);
}

// Gathers packed copies of the blocks of `buffer` and unpacks them into it; this rank's own block
// only if `own_too`, which makes it as rounded as the others have it.
static mics_status gather_packed(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                 mics_wire wire, float *buffer, bool own_too)
{
    const group_ring *group = &engine->rings[step->group];
    const int64_t elems = step->block_elems;
    const size_t bytes = mics_wire_bytes(wire, elems);
    char *image = engine->wire[step->stream];
    pack(engine, wire, image + (size_t)group->own_block * bytes, buffer + group->own_block * elems,
         NULL, elems);
    MICS_TRY(mics_comm_all_gather(engine->spec.comm, ring, image, bytes));
    for (int32_t block = 0; block < group->group.size; block++) {
        if (block != group->own_block || own_too)
            engine->spec.kernels->unpack_bf16(
                buffer + block * elems,
                (const uint16_t *)(const void *)(image + (size_t)block * bytes), elems);
    }
    return MICS_OK;
}

// ---- steps ----

static float *param_shard(const mics_engine *engine, int32_t unit)
{
    return engine->params + engine->map.params[unit];
}

int64_t step_share_at(const mics_engine *engine, const mics_step *step, int64_t block_elems)
{
    if (!step->staged || step->group == step->inside)
        return 0;
    return block_elems * engine->rings[step->group].group.size *
           engine->rings[step->inside].own_block;
}

int64_t step_unit_elems(const mics_engine *engine, const mics_step *step, int32_t unit)
{
    const mics_schedule *schedule = engine->schedule;
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(schedule, step, &count);
    int64_t all = 0;
    for (int32_t i = 0; i < count; i++)
        all += schedule->padded_elems[units[i]];
    const int64_t pieces = all / step->block_elems; // all are cut alike
    return pieces > 1 ? schedule->padded_elems[unit] / pieces : schedule->padded_elems[unit];
}

void *step_message(const mics_engine *engine, const mics_step *step)
{
    const mics_schedule *schedule = engine->schedule;
    return engine->wire[step->stream] + schedule->wire_bytes[step->stream] -
           schedule->join_bytes[step->stream];
}

// ---- parameters ----

// The stage between nodes of a gather that is packed there alone: the node's share lies whole in the
// slot, and packed in its second half.
static mics_status gather_share(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                                float *share)
{
    const int64_t elems = step->block_elems * engine->rings[step->group].group.size;
    char *blocks = (char *)(share + elems / 2);
    pack(engine, step->wire,
         blocks + step->block_bytes * (size_t)engine->rings[step->group].own_block,
         param_shard(engine, step->unit), NULL, step->block_elems);
    MICS_TRY(mics_comm_all_gather(engine->spec.comm, ring, blocks, step->block_bytes));
    engine->spec.kernels->unpack_bf16(share, (const uint16_t *)(const void *)blocks, elems);
    return MICS_OK;
}

// In one stage over the partition group; or between nodes, which fills this rank's block of the node,
// and then inside the node, all in place.
static mics_status gather(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    if (mics_schedule_shares(engine->schedule, step->unit)) // all shards are where they are read
        return mics_comm_all_gather(engine->spec.comm, ring, NULL, 0);
    const int64_t padded = engine->schedule->padded_elems[step->unit];
    const int64_t shard = padded / engine->schedule->sharding[step->unit].params;
    float *slot = engine->gather + engine->map.param_slots[step->uses[0].param_slot];
    const bool across = step->kind == MICS_STEP_GATHER_ACROSS;
    const bool packed = step->wire != MICS_WIRE_FP32;
    const int64_t share = step_share_at(engine, step, step->block_elems);
    if (across && packed && engine->schedule->spec.gather_wires.inside == MICS_WIRE_FP32)
        return gather_share(engine, step, ring, slot + share);
    char *blocks = (char *)(packed ? slot + padded / 2 : slot);
    if (across || !step->staged)
        pack(engine, step->wire,
             blocks + mics_wire_bytes(step->wire, shard) *
                          (size_t)engine->rings[MICS_GROUP_PARAMS].own_block,
             param_shard(engine, step->unit), NULL, shard);
    if (across)
        return mics_comm_all_gather(engine->spec.comm, ring,
                                    blocks + mics_wire_bytes(step->wire, share), step->block_bytes);
    if (step->library)
        MICS_TRY(mics_comm_library_gather(engine->spec.comm, ring, blocks, step->block_bytes));
    else
        MICS_TRY(mics_comm_all_gather(engine->spec.comm, ring, blocks, step->block_bytes));
    if (packed)
        engine->spec.kernels->unpack_bf16(slot, (const uint16_t *)(const void *)blocks, padded);
    return MICS_OK;
}

// ---- gradients of a micro-step ----

// The same backwards: inside the node, which leaves its sum in this rank's block of the node, then between nodes.
static mics_status reduce(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    float *slot = engine->reduce + engine->map.grad_slots[step->uses[0].grad_slot];
    float *accumulator = engine->grads + engine->map.grads[step->unit];
    const int64_t elems = step->block_elems;
    float *buffer = slot + step_share_at(engine, step, step->block_elems);
    if (step->kind == MICS_STEP_REDUCE && step->wire == MICS_WIRE_FP32)
        return mics_comm_reduce_scatter_into(engine->spec.comm, ring, buffer, elems, accumulator,
                                             step->uses[0].accumulate);
    MICS_TRY(reduce_scatter(engine, step, ring, buffer, NULL));
    if (step->kind == MICS_STEP_REDUCE_INSIDE)
        return MICS_OK;
    const float *own = buffer + engine->rings[step->group].own_block * elems;
    const mics_op_place at = place_on(engine, step->stream);
    if (step->uses[0].accumulate)
        engine->ops->accumulate(&at, accumulator, own, elems);
    else
        memcpy(accumulator, own, (size_t)elems * sizeof(float));
    return MICS_OK;
}

// ---- once a step: publication and second hop ----

// The residual of the first reduction of a unit's second hop that goes as int8.
static float *residual_of(const mics_engine *engine, const mics_step *step)
{
    const int64_t at = engine->schedule->residual_at[step->unit];
    return step->wire == MICS_WIRE_INT8 && at >= 0 ? engine->residual + at : NULL;
}

static mics_status all_reduce(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                              float *owned)
{
    if (step->wire == MICS_WIRE_FP32)
        return mics_comm_all_reduce(engine->spec.comm, ring, owned,
                                    step->block_elems * ring->group.size);
    MICS_TRY(reduce_packed(engine, step, ring, owned, residual_of(engine, step)));
    return gather_packed(engine, step, ring, step->back_wire, owned, true);
}

// Of publications masters stay as they are: this rank's own piece is not rounded.
static mics_status gather_boundary(mics_engine *engine, const mics_step *step,
                                   const mics_ring *ring, float *buffer)
{
    if (step->wire != MICS_WIRE_FP32)
        return gather_packed(engine, step, ring, step->wire, buffer,
                             step->kind == MICS_STEP_ALL_REDUCE_BACK);
    return mics_comm_all_gather(engine->spec.comm, ring, buffer, step->block_bytes);
}

// Runs a step on `buffer`: the blocks of the group's members, one behind the other.
static mics_status run_on(mics_engine *engine, const mics_step *step, const mics_ring *ring,
                          float *buffer)
{
    if (step->kind == MICS_STEP_ALL_REDUCE)
        return all_reduce(engine, step, ring, buffer);
    if (mics_step_kind_sums(step->kind))
        return reduce_scatter(engine, step, ring, buffer, residual_of(engine, step));
    return gather_boundary(engine, step, ring, buffer);
}

// What a step is about of one unit, whose block is `block_elems`.
static float *boundary_buffer(const mics_engine *engine, const mics_step *step, int32_t unit,
                              int64_t block_elems)
{
    float *whole = mics_step_kind_whole(step->kind) == MICS_STEP_PUBLISH ? param_shard(engine, unit)
                   : mics_step_kind_whole(step->kind) == MICS_STEP_ALL_REDUCE
                       ? owned_grads(engine, unit)
                       : engine->grads + engine->map.grads[unit];
    return whole + step_share_at(engine, step, block_elems);
}

// Copies one block of every unit into its place in the message, or back.
static void copy_block(const mics_engine *engine, const mics_step *step, float *message,
                       int32_t block, bool back)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(engine->schedule, step, &count);
    float *at = message + block * step->block_elems;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elems = step_unit_elems(engine, step, units[i]);
        float *own = boundary_buffer(engine, step, units[i], elems) + block * elems;
        memcpy(back ? own : at, back ? at : own, (size_t)elems * sizeof(float));
        at += elems;
    }
}

// Several units in one message. What comes in is what the members of the group give to it: all blocks
// of a sum, this rank's of a gather; what goes back is what they get.
static mics_status run_joined(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    const group_ring *group = &engine->rings[step->group];
    const bool sums = mics_step_kind_sums(step->kind);
    const bool gathers = !sums || step->kind == MICS_STEP_ALL_REDUCE;
    // A published piece is the owner's master, but sums that come back are alike on all ranks.
    const bool own_too = mics_step_kind_whole(step->kind) != MICS_STEP_PUBLISH;
    float *message = step_message(engine, step);
    for (int32_t block = 0; block < group->group.size; block++) {
        if (sums || block == group->own_block)
            copy_block(engine, step, message, block, false);
    }
    MICS_TRY(run_on(engine, step, ring, message));
    for (int32_t block = 0; block < group->group.size; block++) {
        if (block == group->own_block ? own_too : gathers)
            copy_block(engine, step, message, block, true);
    }
    return MICS_OK;
}

static mics_status run_boundary(mics_engine *engine, const mics_step *step, const mics_ring *ring)
{
    if (step->member_count > 0)
        return run_joined(engine, step, ring);
    return run_on(engine, step, ring, boundary_buffer(engine, step, step->unit, step->block_elems));
}

void name_step(const mics_engine *engine, const mics_step *step, char *text, size_t capacity)
{
    char micro_step[32] = "", more[24] = "";
    if (step->member_count > 1)
        snprintf(more, sizeof more, " and %d more", (int)step->member_count - 1);
    if (step->micro_step >= 0)
        snprintf(micro_step, sizeof micro_step, ", micro-step %d", (int)step->micro_step + 1);
    snprintf(text, capacity, "%s of %s%s over the %s (%s %lld%s, no. %lld.%d)",
             mics_step_kind_text(step->kind),
             step->unit >= 0 ? engine->schedule->spec.model->units[step->unit].name
                             : "loss and norm",
             more, mics_group_kind_text(step->group),
             engine->phase == MICS_PHASE_TRAIN ? "step" : "evaluation after step",
             (long long)engine->step, micro_step, (long long)engine->note.run,
             (int)(step - engine->list->steps));
}

mics_status run_comm_step(mics_engine *engine, const mics_step *step)
{
    const group_ring *group = &engine->rings[step->group];
    char what[STEP_NAME_BYTES];
    name_step(engine, step, what, sizeof what);
    const mics_ring ring = {.group = group->group,
                            .block_of = group->block_of,
                            .channel = stream_channel(step->stream),
                            .what = what};
    switch (mics_step_kind_whole(step->kind)) {
    case MICS_STEP_GATHER:
        return gather(engine, step, &ring);
    case MICS_STEP_REDUCE:
        return reduce(engine, step, &ring);
    case MICS_STEP_AGREE:
        return mics_comm_all_gather(engine->spec.comm, &ring, engine->agreements,
                                    step->block_bytes);
    default:
        return run_boundary(engine, step, &ring);
    }
}
