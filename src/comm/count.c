// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator that counts the bytes another one sends, intra-node and inter-node.
#include "internal.h"
#include "mics/core/transport.h"
#include "mics/log.h"
#include <assert.h>

// Two threads may exchange at once, one a channel: the counters are atomic.
typedef struct count_comm {
    mics_comm base;
    mics_memory *memory;
    _Atomic int64_t intra_bytes;
    _Atomic int64_t inter_bytes;
    _Atomic int64_t exchanges;
} count_comm;

// Counts an exchange that sent `bytes` to rank `to`; a negative rank is nobody.
static void count_sent(count_comm *self, int32_t to, size_t bytes)
{
    int32_t per_node = self->base.ranks_per_node;
    self->exchanges++;
    if (to == MICS_RANK_NONE)
        return;
    if (to / per_node == self->base.rank / per_node)
        self->intra_bytes += (int64_t)bytes;
    else
        self->inter_bytes += (int64_t)bytes;
}

static mics_status count_exchange(void *ctx, const mics_exchange *exchange)
{
    count_comm *self = ctx;
    MICS_TRY(mics_comm_exchange(self->base.inner, exchange));
    count_sent(self, exchange->to, exchange->bytes);
    return MICS_OK;
}

// Counts the bytes of a collective as mics/core/comm.h states them: a ring's blocks to the next
// member, once for each half of an all-reduce; else one block to each other member.
static void count_call(count_comm *self, const mics_comm_call *call)
{
    const mics_group *group = &call->over->group;
    const size_t block_bytes = (size_t)call->block_elems * mics_dtype_bytes(call->dtype);
    const int32_t rounds = call->kind == MICS_COMM_CALL_ALL_REDUCE ? 2 : 1;
    for (int32_t hop = 1; hop < group->size; hop++) {
        const int32_t steps = call->kind == MICS_COMM_CALL_ALL_TO_ALL ? hop : 1;
        for (int32_t round = 0; round < rounds; round++)
            count_sent(self, mics_group_rank(*group, (group->index + steps) % group->size),
                       block_bytes);
    }
}

static mics_status count_collective(void *ctx, const mics_comm_call *call)
{
    count_comm *self = ctx;
    if (self->base.inner->ops->collective == NULL)
        return comm_call_by_rings(&self->base, call);
    MICS_TRY(mics_comm_collective(self->base.inner, call));
    count_call(self, call);
    return MICS_OK;
}

static void count_close(void *ctx)
{
    count_comm *self = ctx;
    mics_comm_close(self->base.inner);
    mics_free(self->memory, self);
}

static const mics_comm_ops count_ops = {
    .name = "count",
    .exchange = count_exchange,
    .close = count_close,
    .collective = count_collective,
};

mics_status mics_comm_count_open_take(mics_memory *memory, mics_comm *inner, int32_t ranks_per_node,
                                      mics_comm **comm_out)
{
    if (ranks_per_node < 1)
        return mics_fail(MICS_ERR_INVALID, "%d ranks on a node are too few", (int)ranks_per_node);
    count_comm *self = NULL;
    MICS_TRY(MICS_NEW(memory, 1, &self));
    self->memory = memory;
    self->base = *inner;
    self->base.inner = inner;
    self->base.ops = &count_ops;
    self->base.ctx = self;
    self->base.ranks_per_node = ranks_per_node;
    *comm_out = &self->base;
    return MICS_OK;
}

mics_comm *mics_comm_count_inner(const mics_comm *counting)
{
    assert(mics_comm_is_counting(counting));
    return counting->inner;
}

void mics_comm_count_put_inner(mics_comm *counting, mics_comm *inner)
{
    assert(mics_comm_is_counting(counting));
    counting->inner = inner;
}

int mics_comm_is_counting(const mics_comm *comm)
{
    return comm->ops == &count_ops;
}

void mics_comm_count_get(const mics_comm *counting, mics_traffic *traffic_out)
{
    assert(mics_comm_is_counting(counting));
    const count_comm *self = counting->ctx;
    *traffic_out = (mics_traffic){.intra_bytes = self->intra_bytes,
                                  .inter_bytes = self->inter_bytes,
                                  .exchanges = self->exchanges};
}
