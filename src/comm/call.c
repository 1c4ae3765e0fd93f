// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Collectives as calls that a transport may run itself, on the memory of a device; on the host's, rings and
// exchanges run them.
#include "mics/comm.h"

// Each member's block goes to it directly; block h - 1 of `incoming` is from the member h before this one.
static mics_status all_to_all(mics_comm *comm, const mics_comm_call *call)
{
    const mics_ring *ring = call->ring;
    const mics_group *group = &ring->group;
    const size_t bytes = (size_t)call->block_elems * mics_dtype_bytes(call->dtype);
    char *incoming = call->incoming;
    const char *buffer = call->buffer;
    for (int32_t hop = 1; hop < group->size; hop++) {
        const int32_t to = (group->index + hop) % group->size,
                      from = (group->index + group->size - hop) % group->size;
        const int32_t block = ring->block_of != NULL ? ring->block_of[to] : to;
        const mics_exchange exchange = {.to = mics_group_rank(*group, to),
                                        .from = mics_group_rank(*group, from),
                                        .send = buffer + (size_t)block * bytes,
                                        .recv = incoming + (size_t)(hop - 1) * bytes,
                                        .bytes = bytes,
                                        .reduce = MICS_REDUCE_COPY,
                                        .channel = ring->channel,
                                        .what = ring->what};
        MICS_TRY(mics_comm_exchange(comm, &exchange));
    }
    return MICS_OK;
}

mics_status mics_comm_collective(mics_comm *comm, const mics_comm_call *call)
{
    if (comm->ops->collective != NULL)
        return comm->ops->collective(comm->ctx, call);
    switch (call->kind) {
    case MICS_COMM_CALL_ALL_GATHER:
        return mics_comm_all_gather(comm, call->ring, call->buffer,
                                    (size_t)call->block_elems * mics_dtype_bytes(call->dtype));
    case MICS_COMM_CALL_ALL_TO_ALL:
        return all_to_all(comm, call);
    case MICS_COMM_CALL_REDUCE_SCATTER:
        return mics_comm_reduce_scatter(comm, call->ring, call->buffer, call->block_elems);
    default: // ALL_REDUCE
        return mics_comm_all_reduce(comm, call->ring, call->buffer,
                                    call->block_elems * call->ring->group.size);
    }
}

mics_status mics_comm_check(mics_comm *comm)
{
    return comm->ops->check != NULL ? comm->ops->check(comm->ctx) : MICS_OK;
}
