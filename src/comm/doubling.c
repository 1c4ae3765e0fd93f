// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The all-gather of small blocks: as few exchanges one after the other as there can be. Nobody adds
// anything, so its result does not depend on the order.
#include "internal.h"
#include "mics/log.h"
#include <string.h>

// Fills `work` with all blocks, from this member's own one on in the order of mics_group_doubled.
static mics_status gather_rounds(mics_comm *comm, const mics_comm_group *over, char *work,
                                 size_t block_bytes)
{
    const mics_group group = over->group;
    const int32_t per_node = comm->ranks_per_node;
    COMM_FIND(comm, exchange);
    for (int32_t have = 1; have < group.size;) {
        const mics_doubling round = mics_group_doubling(group, per_node, have);
        const mics_exchange exchange = {.to = mics_group_rank(group, round.to),
                                        .from = mics_group_rank(group, round.from),
                                        .send = work,
                                        .recv = comm_block(work, have, block_bytes),
                                        .bytes = (size_t)round.blocks * block_bytes,
                                        .reduce = MICS_REDUCE_COPY,
                                        .channel = over->channel,
                                        .what = over->what};
        MICS_TRY(comm->ops->exchange(comm->ctx, &exchange));
        have += round.blocks;
    }
    return MICS_OK;
}

mics_status mics_comm_all_gather_doubling(mics_comm *comm, const mics_comm_group *over,
                                          void *buffer, void *work, size_t block_bytes)
{
    MICS_TRY(comm_check_group(comm, over, buffer, block_bytes));
    if (work == NULL && block_bytes > 0)
        return mics_fail(MICS_ERR_INVALID, "%s: no memory to gather blocks of %zu bytes in",
                         over->what, block_bytes);
    if (block_bytes == 0)
        return gather_rounds(comm, over, NULL, 0);
    memcpy(work, comm_block(buffer, comm_block_of(over, over->group.index), block_bytes),
           block_bytes);
    MICS_TRY(gather_rounds(comm, over, work, block_bytes));
    for (int32_t place = 1; place < over->group.size; place++) {
        const int32_t member = mics_group_doubled(over->group, comm->ranks_per_node, place);
        memcpy(comm_block(buffer, comm_block_of(over, member), block_bytes),
               comm_block(work, place, block_bytes), block_bytes);
    }
    return MICS_OK;
}
