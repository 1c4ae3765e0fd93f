// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The collectives of a schedule, in place, on the memory that the engine computes in. Runs on the
// communication threads; on a device they enqueue, and the agreement alone waits.
#include "engine/collectives.h"
#include "base/clock.h"
#include "engine/ballot.h"
#include "engine/compressed.h"
#include "engine/deltas.h"
#include "engine/events.h"
#include "engine/islands.h"
#include "engine/matrices.h"
#include "engine/scrub.h"
#include "engine/state.h"
#include "engine/status.h"
#include "mics/core/agreement.h"
#include "mics/core/transport.h"
#include "schedule/rules.h"
#include <stdio.h>
#include <string.h>

// ---- numbers ----

// The dtype of a step's buffers, as the communicator's callers name it.
static mics_dtype held_dtype(const mics_engine *engine, const mics_step *step)
{
    const bool wide =
        mics_step_meets(step) ||
        (mics_step_is_second_hop(step) && !mics_schedule_rounds_sums(&engine->schedule->spec));
    return wide ? MICS_DTYPE_FP32 : engine->dtype;
}

static void copy_elems(const mics_engine *engine, const mics_step *step, void *to, const void *from,
                       int64_t elems, mics_dtype dtype)
{
    engine->device->ops->copy(engine->device->ctx, (int32_t)step->stream, to, from,
                              (size_t)elems * mics_dtype_bytes(dtype));
}

// ---- blocks ----

static mics_status collective(const mics_engine *engine, const mics_step *step,
                              const mics_comm_group *over, mics_comm_call_kind kind,
                              mics_dtype dtype, void *buffer)
{
    const mics_comm_call call = {
        .kind = kind,
        .over = over,
        .buffer = buffer,
        .block_elems = step->block_elems,
        .dtype = dtype,
    };
    return mics_comm_collective(engine->spec.comm, &call);
}

// Where in a buffer, elements, begins what an inter-node stage is about, if its blocks there are
// of `block_elems`: the share that this rank owns inside its node. Stages inside it, and
// collectives in one stage, are about all of the buffer: 0.
static int64_t share_at(const mics_engine *engine, const mics_step *step, int64_t block_elems)
{
    if (step->stage != MICS_STAGE_INTER)
        return 0;
    return block_elems * group_of(engine, step)->group.size *
           engine->groups[step->axis][MICS_SCOPE_INTRA].own_block;
}

// Numbers that travel as they are held, each block to its owner, chunk after chunk: into the
// accumulator, or rounded to where they lie, `own`.
static mics_status sum_directly(const mics_engine *engine, const mics_step *step,
                                const mics_comm_group *over, void *buffer, void *own,
                                float *accumulator)
{
    const mics_exec at = exec_on(engine, step->stream);
    const int32_t others = over->group.size - 1;
    const int64_t all = step->block_elems;
    const int64_t most = mics_schedule_sum_chunk(&engine->schedule->spec, all);
    void *incoming = engine->messages[step->stream];
    for (int64_t first = 0; first < all; first += most) {
        const int64_t elems = most < all - first ? most : all - first;
        const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_TO_ALL,
                                     .over = over,
                                     .buffer = elem_at(engine, buffer, first),
                                     .incoming = incoming,
                                     .block_elems = elems,
                                     .stride_elems = all,
                                     .dtype = engine->dtype};
        void *sum = elem_at(engine, own, first);
        MICS_TRY(mics_comm_collective(engine->spec.comm, &call));
        if (accumulator == NULL)
            engine->ops->sum_blocks_rounded(&at, sum, sum, incoming, others, elems, elems);
        else
            engine->ops->sum_blocks(&at, accumulator + first, sum, incoming, others, elems, elems,
                                    step->uses[0].accumulate);
    }
    return MICS_OK;
}

// This rank's block of `buffer` becomes the sum of all members'.
static mics_status sum(const mics_engine *engine, const mics_step *step,
                       const mics_comm_group *over, void *buffer)
{
    const int64_t own = group_of(engine, step)->own_block * step->block_elems;
    if (!is_compressed(step) && step->algorithm == MICS_ALGORITHM_DIRECT)
        return sum_directly(engine, step, over, buffer, elem_at(engine, buffer, own), NULL);
    if (!is_compressed(step))
        return collective(engine, step, over, MICS_COMM_CALL_REDUCE_SCATTER, MICS_DTYPE_FP32,
                          buffer);
    return sum_compressed(engine, step, over, buffer);
}

// ---- parameters ----

// The inter-node stage of a gather that is compressed there alone: the node's share lies whole
// in the slot, and compressed in its second half.
static mics_status gather_share(const mics_engine *engine, const mics_step *step,
                                const mics_comm_group *over, float *share)
{
    const int64_t elems = step->block_elems * over->group.size;
    char *blocks = (char *)(share + elems / 2);
    compress(engine, step, blocks + step->block_bytes * (size_t)group_of(engine, step)->own_block,
             shard_at(engine, step->unit), step->block_elems);
    MICS_TRY(collective(engine, step, over, MICS_COMM_CALL_ALL_GATHER, MICS_DTYPE_BF16, blocks));
    decompress(engine, step, share, blocks, elems);
    return MICS_OK;
}

// Puts this rank's shard of a unit where the group's shards come together.
static void put_shard(const mics_engine *engine, const mics_step *step, char *blocks,
                      mics_dtype dtype)
{
    const int64_t elems =
        engine->schedule->padded_elems[step->unit] / engine->schedule->sharding[step->unit].params;
    const int32_t own = engine->groups[step->axis][MICS_SCOPE_WHOLE].own_block;
    void *to = blocks + (size_t)(own * elems) * mics_dtype_bytes(dtype);
    if (is_compressed(step))
        compress(engine, step, to, shard_at(engine, step->unit), elems);
    else
        copy_elems(engine, step, to, shard_at(engine, step->unit), elems, dtype);
}

// In one stage over the partition group; or between nodes, which fills this rank's block of the
// node, and then inside the node, all in place.
static mics_status gather(const mics_engine *engine, const mics_step *step,
                          const mics_comm_group *over)
{
    const bool compressed = is_compressed(step), inter = step->stage == MICS_STAGE_INTER;
    const mics_dtype dtype = compressed ? MICS_DTYPE_BF16 : held_dtype(engine, step);
    const int64_t padded = engine->schedule->padded_elems[step->unit];
    const int64_t at = share_at(engine, step, step->block_elems);
    if (step->algorithm == MICS_ALGORITHM_SHARED) // all shards are where they are read
        return mics_comm_all_gather_doubling(engine->spec.comm, over, NULL, NULL, 0);
    char *slot = elem_at(engine, engine->gather, engine->map.param_slots[step->uses[0].param_slot]);
    if (compressed && inter && engine->schedule->spec.params_dtype.intra == MICS_COMM_FP32)
        return gather_share(engine, step, over, (float *)(void *)slot + at);
    char *blocks = compressed ? slot + (size_t)padded * mics_dtype_bytes(MICS_DTYPE_BF16) : slot;
    if (step->stage != MICS_STAGE_INTRA)
        put_shard(engine, step, blocks, dtype);
    MICS_TRY(collective(engine, step, over, MICS_COMM_CALL_ALL_GATHER, dtype,
                        blocks + (size_t)at * mics_dtype_bytes(dtype)));
    if (compressed && !inter)
        decompress(engine, step, (float *)(void *)slot, blocks, padded);
    return MICS_OK;
}

// ---- gradients of a micro-step ----

// A gather backwards: inside the node, which leaves its sum in this rank's block of the node, then
// between nodes.
static mics_status reduce(const mics_engine *engine, const mics_step *step,
                          const mics_comm_group *over)
{
    const mics_exec place = exec_on(engine, step->stream);
    const int64_t elems = step->block_elems, at = share_at(engine, step, elems);
    const bool last = step->stage != MICS_STAGE_INTRA, add = step->uses[0].accumulate;
    void *slot = elem_at(engine, engine->reduce, engine->map.grad_slots[step->uses[0].grad_slot]);
    void *buffer = elem_at(engine, slot, at);
    void *own = elem_at(engine, buffer, group_of(engine, step)->own_block * elems);
    float *accumulator = engine->grads + engine->map.grads[step->unit];
    if (step->algorithm == MICS_ALGORITHM_DIRECT && !is_compressed(step))
        return sum_directly(engine, step, over, buffer, own, last ? accumulator : NULL);
    if (last && !is_compressed(step) && engine->device->is_host) // in the pass that makes the sum
        return mics_comm_reduce_scatter_into(engine->spec.comm, over, buffer, elems, accumulator,
                                             add);
    MICS_TRY(sum(engine, step, over, buffer));
    if (last && add)
        engine->ops->accumulate(&place, accumulator, own, elems);
    else if (last)
        copy_elems(engine, step, accumulator, own, elems, MICS_DTYPE_FP32);
    return MICS_OK;
}

// ---- once a step: second hop, parameter sync and meetings ----

// Runs a step on `buffer`: the blocks of the group's members, one behind the other. Of a parameter
// sync masters stay as they are: this rank's own shard is not rounded.
static mics_status run_on(const mics_engine *engine, const mics_step *step,
                          const mics_comm_group *over, void *buffer)
{
    if (mics_step_sums(step))
        return sum(engine, step, over, buffer);
    if (is_compressed(step))
        return gather_compressed(engine, step, over, buffer, step->kind != MICS_STEP_PARAM_SYNC);
    return collective(engine, step, over, MICS_COMM_CALL_ALL_GATHER, held_dtype(engine, step),
                      buffer);
}

// The part of one unit that a step moves; the unit's block has `block_elems` elements.
static void *boundary_at(const mics_engine *engine, const mics_step *step, int32_t unit,
                         int64_t block_elems)
{
    const int64_t at = share_at(engine, step, block_elems);
    if (step->kind == MICS_STEP_PARAM_SYNC)
        return elem_at(engine, shard_at(engine, unit), at);
    const mics_sharding *degrees = &engine->schedule->sharding[unit];
    if (step->kind == MICS_STEP_MEET_SPREAD)
        return message_at(engine, unit, step->state, degrees->optimizer) + at;
    if (mics_step_meets(step))
        return message_at(engine, unit, step->state,
                          mics_schedule_unit_ranks(engine->schedule, unit)) +
               at;
    return grads_at(engine, unit,
                    step->axis == MICS_AXIS_REPLICATION ? degrees->optimizer : degrees->grads, at);
}

// A unit's part of a step's block, elements.
static int64_t unit_elems(const mics_engine *engine, const mics_step *step, int32_t unit)
{
    const mics_schedule *schedule = engine->schedule;
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(schedule, step, &count);
    int64_t all = 0;
    for (int32_t i = 0; i < count; i++)
        all += schedule->padded_elems[units[i]];
    const int64_t blocks = all / step->block_elems; // all are cut alike
    return blocks > 1 ? schedule->padded_elems[unit] / blocks : schedule->padded_elems[unit];
}

// Copies one block of every unit into its place in the message, or back.
static void copy_block(const mics_engine *engine, const mics_step *step, char *message,
                       int32_t block, bool back)
{
    int32_t count = 0;
    const int32_t *units = mics_schedule_members(engine->schedule, step, &count);
    const mics_dtype dtype = held_dtype(engine, step);
    const size_t bytes = mics_dtype_bytes(dtype);
    char *at = message + (size_t)(block * step->block_elems) * bytes;
    for (int32_t i = 0; i < count; i++) {
        const int64_t elems = unit_elems(engine, step, units[i]);
        char *own =
            (char *)boundary_at(engine, step, units[i], elems) + (size_t)(block * elems) * bytes;
        copy_elems(engine, step, back ? own : at, back ? at : own, elems, dtype);
        at += (size_t)elems * bytes;
    }
}

// The message that units share, behind what is compressed.
static char *shared_message(const mics_engine *engine, const mics_step *step)
{
    return engine->messages[step->stream] + engine->schedule->message_bytes[step->stream] -
           engine->schedule->coalesced_bytes[step->stream];
}

// Several units in one message. What comes in is what the members of the
// group give to it: all blocks of a sum, this rank's of a gather; what goes back is what they get.
// A shard that was synchronised is the owner's master, but gathered sums are alike on all ranks.
static mics_status run_coalesced(const mics_engine *engine, const mics_step *step,
                                 const mics_comm_group *over)
{
    const int32_t size = over->group.size, own = group_of(engine, step)->own_block;
    const bool sums = mics_step_sums(step);
    const bool own_too = step->kind != MICS_STEP_PARAM_SYNC;
    char *message = shared_message(engine, step);
    for (int32_t block = 0; block < size; block++) {
        if (sums || block == own)
            copy_block(engine, step, message, block, false);
    }
    MICS_TRY(run_on(engine, step, over, message));
    for (int32_t block = 0; block < size; block++) {
        if (block == own ? own_too : !sums)
            copy_block(engine, step, message, block, true);
    }
    return MICS_OK;
}

// What a coded parameter sync gathers: its unit's blocks, or those of several in one message.
static char *coded_blocks(const mics_engine *engine, const mics_step *sync)
{
    return sync->member_count > 0 ? shared_message(engine, sync)
                                  : boundary_at(engine, sync, sync->unit, sync->block_elems);
}

static void copy_coded(const mics_engine *engine, const mics_step *sync, bool back)
{
    for (int32_t b = 0; sync->member_count > 0 && b < group_of(engine, sync)->group.size; b++)
        copy_block(engine, sync, shared_message(engine, sync), b, back);
}

static mics_status send_sizes(mics_engine *engine, const mics_step *step,
                              const mics_comm_group *over)
{
    const mics_step *sync = step + 1;
    copy_coded(engine, sync, false);
    return deltas_code(engine, sync, over, coded_blocks(engine, sync));
}

static mics_status run_coded(const mics_engine *engine, const mics_step *sync,
                             const mics_comm_group *over)
{
    void *blocks = coded_blocks(engine, sync);
    if (engine->sync_whole)
        MICS_TRY(run_on(engine, sync, over, blocks));
    else
        MICS_TRY(deltas_gather(engine, sync, over, blocks));
    copy_coded(engine, sync, true);
    return MICS_OK;
}

static mics_status run_boundary(const mics_engine *engine, const mics_step *step,
                                const mics_comm_group *over)
{
    if (mics_schedule_is_left_over(engine->schedule, step->kind) && !engine->brings_back)
        return MICS_OK;
    if (step->coded)
        return run_coded(engine, step, over);
    if (step->member_count > 0)
        return run_coalesced(engine, step, over);
    return run_on(engine, step, over, boundary_at(engine, step, step->unit, step->block_elems));
}

// Block b of `from` goes to its owner, whose block comes to where `to` has it.
static mics_status exchange(const mics_engine *engine, const mics_step *step,
                            const mics_comm_group *over, void *from, void *to, mics_dtype dtype)
{
    const size_t own =
        (size_t)(group_of(engine, step)->own_block * step->block_elems) * mics_dtype_bytes(dtype);
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_TO_ALL,
                                 .over = over,
                                 .buffer = from,
                                 .incoming = to,
                                 .by_owner = true,
                                 .block_elems = step->block_elems,
                                 .dtype = dtype};
    copy_elems(engine, step, (char *)to + own, (char *)from + own, step->block_elems, dtype);
    return mics_comm_collective(engine->spec.comm, &call);
}

// Rows of tokens, or their gradients, to the experts or back. The owner of block b keeps the
// experts that block b is for.
static mics_status all_to_all(const mics_engine *engine, const mics_step *step,
                              const mics_comm_group *over)
{
    const mics_schedule *schedule = engine->schedule;
    const int64_t from = mics_schedule_in_flight_at(schedule, step->from, step->in_flight),
                  to = mics_schedule_in_flight_at(schedule, step->to, step->in_flight);
    return exchange(engine, step, over, elem_at(engine, engine->activations, from),
                    elem_at(engine, engine->activations, to), engine->dtype);
}

// A round's momentum, to the owners of its matrices or back.
static mics_status exchange_momentum(const mics_engine *engine, const mics_step *step,
                                     const mics_comm_group *over)
{
    float *shards = engine->momentum, *owned = owned_momentum(engine, step->unit);
    const bool back = step->kind == MICS_STEP_MOMENTUM_BACK;
    if (mics_schedule_is_left_over(engine->schedule, step->kind) && !engine->brings_back)
        return MICS_OK;
    return exchange(engine, step, over, back ? owned : shards, back ? shards : owned,
                    MICS_DTYPE_FP32);
}

// The one place of a training step where the host waits for the device.
static mics_status agree(mics_engine *engine, const mics_step *step, const mics_comm_group *over)
{
    mics_agreement *mine = own_agreement(engine);
    MICS_TRY(device_wait_step(engine, (int32_t)(step - engine->list->steps)));
    mine->loss = engine->host_sums->loss;
    mine->sum_squares = engine->host_sums->sum_squares;
    mine->updated_squares = engine->host_sums->updated_squares;
    memcpy(mine->router_sums, engine->host_sums->router, sizeof mine->router_sums);
    memcpy(mine->preference_sums, engine->host_sums->preference, sizeof mine->preference_sums);
    scrub_settle(engine);
    mine->told |= scrub_found(engine) != 0 ? TOLD_FLIPPED : 0;
    mics_memory_stats stats;
    mics_memory_stats_get(engine->spec.memory, &stats);
    mine->memory_peak_bytes = (int64_t)stats.total_peak;
    MICS_TRY(mics_comm_all_gather_doubling(engine->spec.comm, over, engine->agreements,
                                           engine->agreements + over->group.size,
                                           step->block_bytes));
    engine->agreed_us = mics_clock_us();
    return MICS_OK;
}

static mics_status run_as(mics_engine *engine, const mics_step *step, const char *what)
{
    const engine_group *group = group_of(engine, step);
    const mics_comm_group over = {.group = group->group,
                                  .block_of = group->block_of,
                                  .channel = step->stream == MICS_STREAM_INTER ? 1 : 0,
                                  .what = what};
    switch (step->kind) {
    case MICS_STEP_GATHER:
        return gather(engine, step, &over);
    case MICS_STEP_REDUCE:
        return reduce(engine, step, &over);
    case MICS_STEP_ALL_TO_ALL:
        return all_to_all(engine, step, &over);
    case MICS_STEP_MOMENTUM_TO_OWNERS:
    case MICS_STEP_MOMENTUM_BACK:
        return exchange_momentum(engine, step, &over);
    case MICS_STEP_AGREE:
        return agree(engine, step, &over);
    case MICS_STEP_AGREE_WORLD:
        return agree_world(engine, &over, step->block_bytes);
    case MICS_STEP_SIZES:
        return send_sizes(engine, step, &over);
    default:
        return run_boundary(engine, step, &over);
    }
}

// A block of activations, between the arena and host memory.
static void copy_activations(mics_engine *engine, const mics_step *step)
{
    const mics_schedule *schedule = engine->schedule;
    const bool stores = step->kind == MICS_STEP_STORE;
    const int64_t host =
        (stores ? step->to : step->from) + step->in_flight * schedule->offload_elems;
    const int64_t arena =
        mics_schedule_in_flight_at(schedule, stores ? step->from : step->to, step->in_flight);
    void *const ends[] = {elem_at(engine, engine->activations, arena),
                          elem_at(engine, engine->offloaded, host)};
    engine->device->ops->copy(engine->device->ctx, MICS_STREAM_COPY, ends[stores], ends[!stores],
                              step->block_bytes);
    engine->result.copied_bytes += (int64_t)step->block_bytes;
}

mics_status run_comm_step(mics_engine *engine, const mics_step *step)
{
    char what[STEP_NAME_BYTES];
    if (mics_step_is_copy(step)) {
        copy_activations(engine, step);
        return MICS_OK;
    }
    name_step(engine, step, what, sizeof what);
    return run_as(engine, step, what);
}

// ---- warm-up ----
//
// A library connects what a collective needs when it first comes, by its kind and its size. So each
// step that differs in them from those before runs once, on arenas that hold zeros, and leaves
// zeros.

static bool connects_alike(const mics_step *a, const mics_step *b)
{
    return a->kind == b->kind && a->axis == b->axis && a->stage == b->stage &&
           a->stream == b->stream && a->algorithm == b->algorithm &&
           a->dtype.sent == b->dtype.sent && a->block_elems == b->block_elems;
}

// Steps that have run so far; of more different ones some run twice.
typedef struct known_steps {
    const mics_step *steps[256];
    int32_t count;
} known_steps;

static bool is_new(known_steps *known, const mics_step *step)
{
    const int32_t most = sizeof known->steps / sizeof known->steps[0];
    for (int32_t i = 0; i < known->count; i++) {
        if (connects_alike(known->steps[i], step))
            return false;
    }
    if (known->count < most)
        known->steps[known->count++] = step;
    return true;
}

static mics_status run_each(mics_engine *engine)
{
    known_steps known = {.count = 0};
    char what[96];
    for (int phase = 0; phase < MICS_PHASES; phase++) {
        const mics_step_list *list = &engine->schedule->lists[phase];
        for (int32_t i = 0; i < list->count; i++) {
            const mics_step *step = &list->steps[i];
            const bool agrees =
                step->kind == MICS_STEP_AGREE || step->kind == MICS_STEP_AGREE_WORLD;
            if (!mics_step_is_comm(step) || agrees || !is_new(&known, step))
                continue;
            snprintf(what, sizeof what, "warm-up of the %s",
                     mics_group_text(step->axis, mics_step_scope(step)));
            MICS_TRY(run_as(engine, step, what));
        }
    }
    device_end_streams(engine, engine->home);
    return device_drain(engine);
}

// Warm-up messages are not counted.
static mics_status run_uncounted(void *ctx)
{
    mics_engine *engine = ctx;
    mics_comm *counting = engine->spec.comm;
    engine->spec.comm = mics_comm_count_inner(counting);
    engine->brings_back = true; // what completes a step before runs too
    const mics_status status = run_each(engine);
    engine->brings_back = false;
    engine->spec.comm = counting;
    return status;
}

mics_status collectives_warm_up(mics_engine *engine)
{
    return mics_comm_warm_up(engine->spec.comm, run_uncounted, engine);
}
