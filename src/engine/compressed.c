// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Compressed numbers. A gather compresses this rank's shard into the second half of the slot, where
// all shards come together, and decompresses them over the whole slot in the end. A direct sum
// sends each member its block and adds what comes in fp32, so each contribution is rounded once,
// where a ring would round every partial sum. A rank sends as many blocks as in a ring; but where a
// group has k members a node, k of them cross to each other node where a ring crosses once. In two
// stages only equal local ranks meet across nodes. On the host blocks come one after the other, on
// a device all at once.
//
// Changes at meetings have error feedback in every dtype, in the sum and in the gather; gradients have
// it in int8.
#include "engine/compressed.h"
#include "engine/state.h"

static mics_exec exec_in_bf16(const mics_engine *engine, const mics_step *step)
{
    mics_exec at = exec_on(engine, step->stream);
    at.dtype = MICS_DTYPE_BF16;
    return at;
}

void compress(const mics_engine *engine, const mics_step *step, void *compressed,
              const float *values, int64_t elems)
{
    const mics_exec at = exec_in_bf16(engine, step);
    if (engine->device->is_host)
        engine->spec.kernels->pack_bf16(compressed, values, elems);
    else
        engine->ops->round(&at, compressed, values, elems);
}

void decompress(const mics_engine *engine, const mics_step *step, float *values,
                const void *compressed, int64_t elems)
{
    const mics_exec at = exec_in_bf16(engine, step);
    if (engine->device->is_host)
        engine->spec.kernels->unpack_bf16(values, compressed, elems);
    else
        engine->ops->widen(&at, values, compressed, elems);
}

// The image of a buffer's blocks stands among the stream's messages.
static char *image_block(const mics_engine *engine, const mics_step *step, int64_t block)
{
    return engine->messages[step->stream] + (size_t)block * step->block_bytes;
}

// `elems` numbers, with what rounding lost before (NULL: without). In bf16 they may be several blocks.
static void pack(const mics_engine *engine, const mics_step *step, void *packed,
                 const float *values, float *residual, int64_t elems)
{
    const mics_exec at = exec_in_bf16(engine, step);
    if (step->dtype.sent == MICS_COMM_INT8)
        engine->spec.kernels->pack_int8(packed, values, residual, elems);
    else if (step->dtype.sent == MICS_COMM_INT4)
        engine->spec.kernels->pack_int4(packed, values, residual, elems);
    else if (residual != NULL)
        engine->ops->meet_round(&at, packed, values, residual, elems);
    else
        compress(engine, step, packed, values, elems);
}

static void add_packed(const mics_engine *engine, const mics_step *step, float *sum,
                       const void *packed)
{
    const mics_kernels *kernels = engine->spec.kernels;
    if (step->dtype.sent == MICS_COMM_BF16)
        kernels->add_bf16(sum, packed, step->block_elems);
    else if (step->dtype.sent == MICS_COMM_INT8)
        kernels->add_int8(sum, packed, step->block_elems);
    else
        kernels->add_int4(sum, packed, step->block_elems);
}

// Blocks [first, last) of the image into `buffer`.
static void unpack(const mics_engine *engine, const mics_step *step, float *buffer, int32_t first,
                   int32_t last)
{
    const mics_kernels *kernels = engine->spec.kernels;
    const int64_t elems = step->block_elems;
    if (step->dtype.sent == MICS_COMM_BF16 && first < last)
        decompress(engine, step, buffer + first * elems, image_block(engine, step, first),
                   (last - first) * elems);
    for (int32_t b = first; b < last && step->dtype.sent == MICS_COMM_INT8; b++)
        kernels->unpack_int8(buffer + b * elems, image_block(engine, step, b), elems);
    for (int32_t b = first; b < last && step->dtype.sent == MICS_COMM_INT4; b++)
        kernels->unpack_int4(buffer + b * elems, image_block(engine, step, b), elems);
}

// ---- direct sums ----

// What rounding lost: of a unit's changes, of its second hop in int8 in the first reduction. NULL for
// other steps.
static float *residual_of(const mics_engine *engine, const mics_step *step)
{
    const int64_t at = engine->schedule->residual_at[step->unit];
    if (mics_step_meets(step))
        return engine->outer + engine->schedule->meetings[step->unit].sent_residual;
    return step->dtype.sent == MICS_COMM_INT8 && at >= 0 ? engine->residual + at : NULL;
}

static mics_status sum_one_by_one(const mics_engine *engine, const mics_step *step,
                                  const mics_comm_group *over, float *buffer)
{
    const engine_group *group = group_of(engine, step);
    const int32_t size = group->group.size, index = group->group.index;
    const int64_t elems = step->block_elems;
    float *residual = residual_of(engine, step);
    char *outgoing = engine->messages[step->stream], *incoming = outgoing + step->block_bytes;
    float *own = buffer + group->own_block * elems;
    for (int32_t hop = 1; hop < size; hop++) {
        const int32_t to = (index + hop) % size, from = (index + size - hop) % size;
        const int64_t at = group->block_of[to] * elems;
        pack(engine, step, outgoing, buffer + at, residual != NULL ? residual + at : NULL, elems);
        const mics_exchange exchange = {.to = mics_group_rank(group->group, to),
                                        .from = mics_group_rank(group->group, from),
                                        .send = outgoing,
                                        .recv = incoming,
                                        .bytes = step->block_bytes,
                                        .reduce = MICS_REDUCE_COPY,
                                        .channel = over->channel,
                                        .what = over->what};
        MICS_TRY(mics_comm_exchange(engine->spec.comm, &exchange));
        add_packed(engine, step, own, incoming);
    }
    return MICS_OK;
}

// In bf16. Blocks of the other members arrive behind the image.
static mics_status sum_at_once(const mics_engine *engine, const mics_step *step,
                               const mics_comm_group *over, float *buffer)
{
    const mics_exec at = exec_in_bf16(engine, step);
    const int32_t size = over->group.size;
    const int64_t elems = step->block_elems;
    char *image = image_block(engine, step, 0), *incoming = image_block(engine, step, size);
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_TO_ALL,
                                 .over = over,
                                 .buffer = image,
                                 .incoming = incoming,
                                 .block_elems = elems,
                                 .dtype = MICS_DTYPE_BF16};
    pack(engine, step, image, buffer, residual_of(engine, step), size * elems);
    MICS_TRY(mics_comm_collective(engine->spec.comm, &call));
    engine->ops->sum_blocks(&at, buffer + group_of(engine, step)->own_block * elems, incoming,
                            image_block(engine, step, size + 1), size - 2, elems, elems, true);
    return MICS_OK;
}

mics_status sum_compressed(const mics_engine *engine, const mics_step *step,
                           const mics_comm_group *over, float *buffer)
{
    return engine->schedule->spec.accelerator ? sum_at_once(engine, step, over, buffer)
                                              : sum_one_by_one(engine, step, over, buffer);
}

// ---- gathers ----

// Blocks of bytes that are not of a dtype are the host's.
static mics_status gather_image(const mics_engine *engine, const mics_step *step,
                                const mics_comm_group *over)
{
    const mics_comm_call call = {.kind = MICS_COMM_CALL_ALL_GATHER,
                                 .over = over,
                                 .buffer = image_block(engine, step, 0),
                                 .block_elems = step->block_elems,
                                 .dtype = MICS_DTYPE_BF16};
    return step->dtype.sent == MICS_COMM_BF16
               ? mics_comm_collective(engine->spec.comm, &call)
               : mics_comm_all_gather(engine->spec.comm, over, call.buffer, step->block_bytes);
}

mics_status gather_compressed(const mics_engine *engine, const mics_step *step,
                              const mics_comm_group *over, float *buffer, bool own_too)
{
    const int32_t own = group_of(engine, step)->own_block, size = over->group.size;
    float *residual = mics_step_meets(step)
                          ? engine->outer + engine->schedule->meetings[step->unit].met_residual
                          : NULL;
    pack(engine, step, image_block(engine, step, own), buffer + own * step->block_elems, residual,
         step->block_elems);
    MICS_TRY(gather_image(engine, step, over));
    unpack(engine, step, buffer, 0, own_too ? size : own);
    if (!own_too)
        unpack(engine, step, buffer, own + 1, size);
    return MICS_OK;
}
