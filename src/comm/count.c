// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator that counts the bytes another one sends, inside nodes and between them.
#include "mics/comm.h"
#include "mics/log.h"
#include <assert.h>

typedef struct count_comm {
    mics_comm base;
    mics_memory *memory;
    mics_comm *inner;
    mics_traffic traffic;
} count_comm;

static mics_status count_exchange(void *ctx, const mics_exchange *exchange)
{
    count_comm *self = ctx;
    MICS_TRY(self->inner->ops->exchange(self->inner->ctx, exchange));
    self->traffic.exchanges++;
    if (exchange->to == MICS_RANK_NONE)
        return MICS_OK;
    int32_t per_node = self->base.ranks_per_node;
    if (exchange->to / per_node == self->base.rank / per_node)
        self->traffic.intra_bytes += (int64_t)exchange->bytes;
    else
        self->traffic.inter_bytes += (int64_t)exchange->bytes;
    return MICS_OK;
}

static void count_set_timeout(void *ctx, double seconds)
{
    count_comm *self = ctx;
    self->inner->ops->set_timeout(self->inner->ctx, seconds);
}

static void count_abort(void *ctx)
{
    count_comm *self = ctx;
    self->inner->ops->abort(self->inner->ctx);
}

static void count_close(void *ctx)
{
    count_comm *self = ctx;
    mics_comm_close(self->inner);
    mics_free(self->memory, self);
}

static const mics_comm_ops count_ops = {
    .name = "count",
    .exchange = count_exchange,
    .set_timeout = count_set_timeout,
    .abort = count_abort,
    .close = count_close,
};

mics_status mics_comm_count_open_take(mics_memory *memory, mics_comm *inner, int32_t ranks_per_node,
                                      mics_comm **comm_out)
{
    if (ranks_per_node < 1)
        return mics_fail(MICS_ERR_INVALID, "%d ranks on a node are too few", (int)ranks_per_node);
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(count_comm), &block));
    count_comm *self = block;
    self->memory = memory;
    self->inner = inner;
    self->base = *inner;
    self->base.ops = &count_ops;
    self->base.ctx = self;
    self->base.ranks_per_node = ranks_per_node;
    *comm_out = &self->base;
    return MICS_OK;
}

int mics_comm_is_counting(const mics_comm *comm)
{
    return comm->ops == &count_ops;
}

void mics_comm_count_get(const mics_comm *counting, mics_traffic *traffic_out)
{
    assert(mics_comm_is_counting(counting));
    const count_comm *self = counting->ctx;
    *traffic_out = self->traffic;
}
