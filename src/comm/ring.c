// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives as rings of exchanges. In step s every member sends one block to the next member and
// receives one from the previous; which block, and so the order of a sum, depends on the member
// and the step alone.
#include "base/size.h"
#include "internal.h"
#include "mics/log.h"
#include <stdbool.h>

mics_status comm_check_group(const mics_comm *comm, const mics_comm_group *over, const void *buffer,
                             size_t block_bytes)
{
    const mics_group *group = &over->group;
    const char *what = over->what;
    if (what == NULL)
        return mics_fail(MICS_ERR_INVALID, "ring: `what` names no reason");
    int64_t last = group->first + ((int64_t)group->size - 1) * group->stride;
    int64_t mine = group->first + (int64_t)group->index * group->stride;
    if (group->size < 1 || group->stride < 1 || group->first < 0 || last >= comm->ranks)
        return mics_fail(MICS_ERR_INVALID,
                         "%s: a group of %d from rank %d in steps of %d is not within %d ranks",
                         what, (int)group->size, (int)group->first, (int)group->stride,
                         (int)comm->ranks);
    if (group->index < 0 || group->index >= group->size || mine != comm->rank)
        return mics_fail(MICS_ERR_INVALID, "%s: rank %d is not member %d of its group", what,
                         (int)comm->rank, (int)group->index);
    if (over->channel < 0 || over->channel >= MICS_CHANNELS)
        return mics_fail(MICS_ERR_INVALID, "%s: channel %d is not one of %d", what,
                         (int)over->channel, (int)MICS_CHANNELS);
    for (int32_t m = 0; over->block_of != NULL && m < group->size; m++) {
        if (over->block_of[m] < 0 || over->block_of[m] >= group->size)
            return mics_fail(MICS_ERR_INVALID, "%s: member %d owns block %d of %d", what, (int)m,
                             (int)over->block_of[m], (int)group->size);
    }
    if (block_bytes > SIZE_MAX / (size_t)group->size)
        return mics_fail(MICS_ERR_INVALID, "%s: %d blocks of %zu bytes are more than there can be",
                         what, (int)group->size, block_bytes);
    if (buffer == NULL && block_bytes > 0)
        return mics_fail(MICS_ERR_INVALID, "%s: no buffer for blocks of %zu bytes", what,
                         block_bytes);
    return MICS_OK;
}

// The block that is `back` members before this one, counted round the ring (0 <= back <= size).
static char *block_before(const mics_comm_group *over, char *buffer, size_t block_bytes,
                          int32_t back)
{
    int32_t member = over->group.index - back;
    if (member < 0)
        member += over->group.size;
    return comm_block(buffer, comm_block_of(over, member), block_bytes);
}

// Where the last sum of a ring goes; NULL: the buffer itself.
typedef struct ring_end {
    float *into;
    bool add;
} ring_end;

// size - 1 steps. The block sent in step s is owned by the member `lead + s` before this one; the
// one received, by the member before that.
static mics_status go_round(mics_comm *comm, const mics_comm_group *over, char *buffer,
                            size_t block_bytes, int32_t lead, mics_reduce reduce, ring_end end)
{
    const mics_group *group = &over->group;
    int32_t next = group->index + 1 < group->size ? group->index + 1 : 0;
    int32_t previous = group->index > 0 ? group->index - 1 : group->size - 1;
    COMM_FIND(comm, exchange);
    for (int32_t step = 0; step < group->size - 1; step++) {
        const bool last = step == group->size - 2;
        mics_exchange exchange = {.to = mics_group_rank(*group, next),
                                  .from = mics_group_rank(*group, previous),
                                  .send = block_before(over, buffer, block_bytes, lead + step),
                                  .recv = block_before(over, buffer, block_bytes, lead + step + 1),
                                  .bytes = block_bytes,
                                  .reduce = reduce,
                                  .into = last ? end.into : NULL,
                                  .add = end.add,
                                  .channel = over->channel,
                                  .what = over->what};
        MICS_TRY(comm->ops->exchange(comm->ctx, &exchange));
    }
    return MICS_OK;
}

mics_status mics_comm_all_gather(mics_comm *comm, const mics_comm_group *over, void *buffer,
                                 size_t block_bytes)
{
    MICS_TRY(comm_check_group(comm, over, buffer, block_bytes));
    return go_round(comm, over, buffer, block_bytes, 0, MICS_REDUCE_COPY, (ring_end){0});
}

// Sending the previous member's block first makes that block's sum start with this member and end
// at its owner.
mics_status mics_comm_reduce_scatter(mics_comm *comm, const mics_comm_group *over, float *buffer,
                                     int64_t block_elems)
{
    size_t block_bytes = 0;
    MICS_TRY(mics_size_bytes(block_elems, sizeof(float), &block_bytes));
    MICS_TRY(comm_check_group(comm, over, buffer, block_bytes));
    return go_round(comm, over, (char *)buffer, block_bytes, 1, MICS_REDUCE_SUM_F32, (ring_end){0});
}

mics_status mics_comm_reduce_scatter_into(mics_comm *comm, const mics_comm_group *over,
                                          float *buffer, int64_t block_elems, float *into, bool add)
{
    size_t block_bytes = 0;
    MICS_TRY(mics_size_bytes(block_elems, sizeof(float), &block_bytes));
    MICS_TRY(comm_check_group(comm, over, buffer, block_bytes));
    if (into == NULL && block_elems > 0)
        return mics_fail(MICS_ERR_INVALID, "%s: no buffer for the sum", over->what);
    if (over->group.size > 1)
        return go_round(comm, over, (char *)buffer, block_bytes, 1, MICS_REDUCE_SUM_F32,
                        (ring_end){into, add});
    for (int64_t i = 0; i < block_elems; i++) // alone: the sum of one
        into[i] = add ? into[i] + buffer[i] : buffer[i];
    return MICS_OK;
}

mics_status mics_comm_all_reduce(mics_comm *comm, const mics_comm_group *over, float *buffer,
                                 int64_t elems)
{
    if (elems < 0 || over->group.size < 1 || elems % over->group.size != 0)
        return mics_fail(MICS_ERR_INVALID, "%s: %lld elements do not divide among %d ranks",
                         over->what != NULL ? over->what : "all-reduce", (long long)elems,
                         (int)over->group.size);
    int64_t block_elems = elems / over->group.size;
    MICS_TRY(mics_comm_reduce_scatter(comm, over, buffer, block_elems));
    return mics_comm_all_gather(comm, over, buffer, (size_t)block_elems * sizeof(float));
}
