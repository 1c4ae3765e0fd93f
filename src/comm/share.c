// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory that ranks of a node see as one. The group's first member makes it and hands a ticket from
// member to member; each opens it, and then all hear whether all have.
#include "internal.h"
#include "mics/log.h"

// The last member has nobody to pass it on to, and the first has made it.
static mics_status pass_on(mics_comm *comm, const mics_comm_group *ring, comm_ticket *ticket)
{
    const mics_group *group = &ring->group;
    const bool first = group->index == 0, last = group->index == group->size - 1;
    mics_exchange exchange = {.to = MICS_RANK_NONE,
                              .from = first ? MICS_RANK_NONE
                                            : mics_group_rank(*group, group->index - 1),
                              .recv = ticket,
                              .bytes = sizeof *ticket,
                              .reduce = MICS_REDUCE_COPY,
                              .channel = ring->channel,
                              .what = ring->what};
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

mics_status comm_share_by(mics_comm *comm, const comm_share_ops *ops, const mics_comm_group *ring,
                          size_t bytes, void **memory_out)
{
    comm_ticket ticket = {0};
    void *memory = NULL;
    mics_status mine = MICS_OK;
    if (ring->group.index == 0)
        mine = ops->make(comm->ctx, bytes, ring->group.size, &ticket, &memory);
    ticket.made = ring->group.index == 0 && mine == MICS_OK;
    mics_status status = pass_on(comm, ring, &ticket);
    if (status == MICS_OK && ring->group.index > 0)
        mine = ticket.made ? ops->find(comm->ctx, bytes, &ticket, &memory) : MICS_ERR_PEER;
    if (status == MICS_OK)
        status = comm_agree(comm, ring, mine);
    if (ring->group.index == 0 && ops->made != NULL)
        ops->made(comm->ctx, &ticket);
    if (status == MICS_OK)
        *memory_out = memory;
    else if (memory != NULL)
        ops->drop(comm->ctx, memory);
    return status;
}

mics_status mics_comm_share(mics_comm *comm, const mics_comm_group *ring, size_t bytes,
                            void **memory_out)
{
    MICS_TRY(comm_check_ring(comm, ring, NULL, 0));
    if (comm->ops->share == NULL)
        return mics_fail(MICS_ERR_UNSUPPORTED, "%s: ranks of this world share no memory",
                         ring->what);
    if (bytes == 0 || bytes > SIZE_MAX / 2)
        return mics_fail(MICS_ERR_INVALID, "%s: %zu bytes cannot be shared", ring->what, bytes);
    return comm->ops->share(comm->ctx, ring, bytes, memory_out);
}

void mics_comm_unshare(mics_comm *comm, void *memory)
{
    if (memory != NULL)
        comm->ops->unshare(comm->ctx, memory);
}
