// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory that ranks of a node see as one. The group's first member makes it and hands a ticket from
// member to member; each opens it, and then all hear whether all have.
#include "internal.h"
#include "mics/log.h"

static mics_exchange along(const mics_ring *ring, const void *send, void *recv, size_t bytes)
{
    const mics_group *group = &ring->group;
    const int32_t next = (group->index + 1) % group->size;
    const int32_t previous = (group->index + group->size - 1) % group->size;
    return (mics_exchange){.to = mics_group_rank(*group, next),
                           .from = mics_group_rank(*group, previous),
                           .send = send,
                           .recv = recv,
                           .bytes = bytes,
                           .reduce = MICS_REDUCE_COPY,
                           .channel = ring->channel,
                           .what = ring->what};
}

// The last member has nobody to pass it on to, and the first has made it.
static mics_status pass_on(mics_comm *comm, const mics_ring *ring, comm_ticket *ticket)
{
    const bool first = ring->group.index == 0, last = ring->group.index == ring->group.size - 1;
    mics_exchange in = along(ring, NULL, ticket, sizeof *ticket);
    mics_exchange out = along(ring, ticket, NULL, sizeof *ticket);
    in.to = out.from = MICS_RANK_NONE;
    if (!first)
        MICS_TRY(comm->ops->exchange(comm->ctx, &in));
    return last ? MICS_OK : comm->ops->exchange(comm->ctx, &out);
}

// Round the ring, so that each hears of the worst.
static mics_status agree(mics_comm *comm, const mics_ring *ring, mics_status mine)
{
    int32_t worst = (int32_t)mine;
    for (int32_t hop = 1; hop < ring->group.size; hop++) {
        int32_t theirs = MICS_OK;
        const mics_exchange exchange = along(ring, &worst, &theirs, sizeof worst);
        mics_status status = comm->ops->exchange(comm->ctx, &exchange);
        if (status != MICS_OK)
            return mine != MICS_OK ? mine : status;
        if (theirs > worst)
            worst = theirs;
    }
    if (mine != MICS_OK)
        return mine;
    return worst == MICS_OK ? MICS_OK : MICS_ERR_PEER;
}

mics_status comm_share_by(mics_comm *comm, const comm_share_ops *ops, const mics_ring *ring,
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
        status = agree(comm, ring, mine);
    if (ring->group.index == 0 && ops->made != NULL)
        ops->made(comm->ctx, &ticket);
    if (status == MICS_OK)
        *memory_out = memory;
    else if (memory != NULL)
        ops->drop(comm->ctx, memory);
    return status;
}

mics_status mics_comm_share(mics_comm *comm, const mics_ring *ring, size_t bytes, void **memory_out)
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
