// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Inter-node parameter sync as changes. Whoever receives a parameter holds its old value; so
// changes are coded, and decoded in place.
//
// The old values of the block that a rank sends are those that others have. An update leaves them
// in the parameter shard, and writes masters alone (mics_schedule_codes): the new values are the
// masters, rounded when they are coded. So no copy of old values is kept, however long the sync comes
// behind the update. Nobody reads the shard in between, as the other ranks' blocks of it are old too.
//
// SIZES codes the block and tells its bytes; the sync directly behind it passes the coded blocks
// round. Two of them are held: the one that is passed on, and the next, which is decoded as it comes
// and passed on then. Messages are the INTER stream's, which runs both steps and nothing in between.
//
// Numbers go in place of changes behind anything that writes parameters, and where the caller asks:
// then copies that differ from their owner's, say by a flipped bit, are alike again. A rank that wants
// that tells 0 bytes, and all send numbers.
#include "engine/deltas.h"
#include "comm/delta/delta.h"
#include "engine/state.h"
#include "mics/log.h"
#include <string.h>

void mics_engine_sync_whole(mics_engine *engine)
{
    engine->whole_next = true;
}

void deltas_begin(mics_engine *engine)
{
    engine->unsent = engine->unsent_by_all = (mics_bytes){0, 0};
    if (engine->phase != MICS_PHASE_TRAIN)
        return;
    engine->wants_whole = engine->whole_next;
    engine->whole_next = false;
}

// ---- sizes ----

static const mics_mesh *mesh_of(const mics_engine *engine)
{
    return &engine->schedule->spec.mesh;
}

// Where a rank of the world stands among those that tell sizes.
static int32_t place_of(const mics_engine *engine, int32_t rank)
{
    return rank % mesh_of(engine)->ranks;
}

// The owner's new values, of all units of the message.
static void round_masters(const mics_engine *engine, const mics_step *sync, uint16_t *now)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(engine->schedule, sync, &count);
    for (int32_t i = 0; i < count; i++) {
        const int64_t elems = owned_elems(engine, units[i]);
        engine->spec.kernels->pack_bf16(now, optimizer_shard_of(engine, units[i]).masters, elems);
        now += elems;
    }
}

static int64_t code_block(const mics_engine *engine, const mics_step *sync, uint16_t *block)
{
    char *coded = engine->messages[sync->stream];
    uint16_t *now = (uint16_t *)(void *)(coded + sync->block_bytes);
    const int64_t elems = sync->block_elems;
    round_masters(engine, sync, now);
    const size_t bytes = engine->wants_whole ? 0 : mics_delta_encode(block, now, elems, coded);
    memcpy(block, now, (size_t)elems * sizeof *now);
    return (int64_t)bytes;
}

// What a rank sends less than the most: of all blocks but its ring's next member's.
static mics_bytes unsent_by(const mics_engine *engine, const mics_step *sync, int32_t rank)
{
    const mics_mesh *mesh = mesh_of(engine);
    const mics_group group = mics_mesh_group(mesh, sync->axis, mics_step_scope(sync), rank);
    const int32_t next = mics_group_rank(group, (group.index + 1) % group.size);
    int64_t unsent = 0;
    for (int32_t member = 0; member < group.size; member++) {
        const int32_t owner = mics_group_rank(group, member);
        unsent +=
            owner == next ? 0 : (int64_t)sync->block_bytes - engine->sizes[place_of(engine, owner)];
    }
    const bool intra = next / mesh->ranks_per_node == rank / mesh->ranks_per_node;
    return (mics_bytes){.intra = intra ? unsent : 0, .inter = intra ? 0 : unsent};
}

static void add_bytes(mics_bytes *sum, mics_bytes bytes)
{
    sum->intra += bytes.intra;
    sum->inter += bytes.inter;
}

static void count_unsent(mics_engine *engine, const mics_step *sync)
{
    const int32_t ranks = mesh_of(engine)->ranks, first = engine->rank / ranks * ranks;
    for (int32_t rank = first; rank < first + ranks; rank++)
        add_bytes(&engine->unsent_by_all, unsent_by(engine, sync, rank));
    add_bytes(&engine->unsent, unsent_by(engine, sync, engine->rank));
}

static mics_status check_sizes(const mics_engine *engine, const mics_step *sync,
                               const mics_comm_group *over)
{
    for (int32_t member = 0; member < over->group.size; member++) {
        const int64_t bytes = engine->sizes[member];
        if (bytes < 0 || bytes > (int64_t)sync->block_bytes)
            return mics_fail(MICS_ERR_COMM,
                             "%s: rank %d tells rank %d that its coded block takes %lld bytes; it "
                             "takes at most %zu",
                             over->what, (int)mics_group_rank(over->group, member),
                             (int)engine->rank, (long long)bytes, sync->block_bytes);
    }
    return MICS_OK;
}

// What all send, where one of them wants numbers.
static void settle_sizes(mics_engine *engine, const mics_step *sync)
{
    const int32_t ranks = mesh_of(engine)->ranks;
    engine->sync_whole = false;
    for (int32_t place = 0; place < ranks; place++)
        engine->sync_whole = engine->sync_whole || engine->sizes[place] == 0;
    for (int32_t place = 0; engine->sync_whole && place < ranks; place++)
        engine->sizes[place] = sync->block_elems * (int64_t)sizeof(uint16_t);
}

mics_status deltas_code(mics_engine *engine, const mics_step *sync, const mics_comm_group *over,
                        void *blocks)
{
    uint16_t *own = (uint16_t *)blocks + group_of(engine, sync)->own_block * sync->block_elems;
    engine->sizes[place_of(engine, engine->rank)] = code_block(engine, sync, own);
    MICS_TRY(mics_comm_all_gather_doubling(engine->spec.comm, over, engine->sizes,
                                           engine->sizes + over->group.size,
                                           sizeof *engine->sizes));
    MICS_TRY(check_sizes(engine, sync, over));
    settle_sizes(engine, sync);
    count_unsent(engine, sync);
    return MICS_OK;
}

// ---- changes ----

static mics_status decode(const mics_engine *engine, const mics_step *sync,
                          const mics_comm_group *over, int32_t member, const void *coded,
                          size_t bytes, void *blocks)
{
    const int64_t elems = sync->block_elems;
    uint16_t *block = (uint16_t *)blocks + group_of(engine, sync)->block_of[member] * elems;
    if (mics_delta_decode(block, elems, coded, bytes))
        return MICS_OK;
    const mics_group *group = &over->group;
    return mics_fail(
        MICS_ERR_COMM,
        "%s: the change of rank %d's parameters that came to rank %d from rank %d does "
        "not decode; it was damaged on its way, in memory or on a link",
        over->what, (int)mics_group_rank(*group, member), (int)engine->rank,
        (int)mics_group_rank(*group, (group->index + group->size - 1) % group->size));
}

mics_status deltas_gather(const mics_engine *engine, const mics_step *sync,
                          const mics_comm_group *over, void *blocks)
{
    const mics_group group = over->group;
    const int32_t next = (group.index + 1) % group.size,
                  previous = (group.index + group.size - 1) % group.size;
    char *messages[] = {engine->messages[sync->stream],
                        engine->messages[sync->stream] + sync->block_bytes};
    int32_t owner = group.index; // of the block that is passed on
    for (int32_t hop = 0; hop + 1 < group.size; hop++) {
        const int32_t coming = (owner + group.size - 1) % group.size;
        const mics_exchange exchange = {
            .to = mics_group_rank(group, next),
            .from = mics_group_rank(group, previous),
            .send = messages[hop % 2],
            .recv = messages[1 - hop % 2],
            .bytes = (size_t)engine->sizes[place_of(engine, mics_group_rank(group, owner))],
            .recv_bytes = (size_t)engine->sizes[place_of(engine, mics_group_rank(group, coming))],
            .reduce = MICS_REDUCE_COPY,
            .channel = over->channel,
            .what = over->what};
        MICS_TRY(mics_comm_exchange(engine->spec.comm, &exchange));
        MICS_TRY(decode(engine, sync, over, coming, exchange.recv, exchange.recv_bytes, blocks));
        owner = coming;
    }
    return MICS_OK;
}
