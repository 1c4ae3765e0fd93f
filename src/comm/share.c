// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory that ranks of a node see as one. The group's first member makes it and hands a ticket from
// member to member; each opens it, and then all hear whether all have.
#include "internal.h"
#include "mics/log.h"

// The last member has nobody to pass it on to, and the first has made it.
static mics_status pass_on(mics_comm *comm, const mics_comm_group *over, comm_ticket *ticket)
{
    const mics_group *group = &over->group;
    const bool first = group->index == 0, last = group->index == group->size - 1;
    mics_exchange exchange = {.to = MICS_RANK_NONE,
                              .from = first ? MICS_RANK_NONE
                                            : mics_group_rank(*group, group->index - 1),
                              .recv = ticket,
                              .bytes = sizeof *ticket,
                              .reduce = MICS_REDUCE_COPY,
                              .channel = over->channel,
                              .what = over->what};
    COMM_FIND(comm, exchange);
    if (!first)
        MICS_TRY(comm->ops->exchange(comm->ctx, &exchange));
    if (last)
        return MICS_OK;
    exchange.to = mics_group_rank(*group, group->index + 1);
    exchange.from = MICS_RANK_NONE;
    exchange.send = ticket;
    exchange.recv = NULL;
    return comm->ops->exchange(comm->ctx, &exchange);
}

mics_status comm_share_by(mics_comm *comm, const comm_share_ops *ops, const mics_comm_group *over,
                          size_t bytes, void **memory_out)
{
    comm_ticket ticket = {0};
    void *memory = NULL;
    mics_status mine = MICS_OK;
    if (over->group.index == 0)
        mine = ops->make(comm->ctx, bytes, over->group.size, &ticket, &memory);
    ticket.made = over->group.index == 0 && mine == MICS_OK;
    mics_status status = pass_on(comm, over, &ticket);
    if (status == MICS_OK && over->group.index > 0)
        mine = ticket.made ? ops->find(comm->ctx, bytes, &ticket, &memory) : MICS_ERR_PEER;
    if (status == MICS_OK)
        status = comm_agree(comm, over, mine);
    if (over->group.index == 0 && ops->made != NULL)
        ops->made(comm->ctx, &ticket);
    if (status == MICS_OK)
        *memory_out = memory;
    else if (memory != NULL)
        ops->drop(comm->ctx, memory);
    return status;
}

mics_status mics_comm_share(mics_comm *comm, const mics_comm_group *over, size_t bytes,
                            void **memory_out)
{
    MICS_TRY(comm_check_group(comm, over, NULL, 0));
    COMM_FIND(comm, share);
    if (comm->ops->share == NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: ranks of this world share no memory",
                         over->what);
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return mics_fail(MICS_ERR_INVALID, "%s: %zu bytes cannot be shared", over->what, bytes);
    return comm->ops->share(comm->ctx, over, bytes, memory_out);
}

void mics_comm_unshare(mics_comm *comm, void *memory)
{
    COMM_FIND(comm, unshare);
    if (memory != NULL)
        comm->ops->unshare(comm->ctx, memory);
}
