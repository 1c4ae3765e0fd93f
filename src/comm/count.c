// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator that counts the bytes another one sends, inside nodes and between them.
#include "internal.h"
#include "mics/log.h"
#include <assert.h>

// Two threads may exchange at once, one a channel: the counters are atomic.
typedef struct count_comm {
    mics_comm base;
    mics_memory *memory;
    mics_comm *inner;
    _Atomic int64_t intra_bytes;
    _Atomic int64_t inter_bytes;
    _Atomic int64_t exchanges;
} count_comm;

// One exchange that sent `bytes` to rank `to`, which may be nobody.
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
    MICS_TRY(self->inner->ops->exchange(self->inner->ctx, exchange));
    count_sent(self, exchange->to, exchange->bytes);
    return MICS_OK;
}

// What mics/comm.h says that a collective sends: a ring's blocks to the next member, once for each
// half of an all-reduce; or one to each other member.
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
    if (self->inner->ops->collective == NULL)
        return comm_call_by_rings(&self->base, call);
    MICS_TRY(mics_comm_collective(self->inner, call));
    count_call(self, call);
    return MICS_OK;
}

static mics_status count_check(void *ctx)
{
    count_comm *self = ctx;
    return mics_comm_check(self->inner);
}

static mics_status count_register(void *ctx, const mics_comm_buffer *buffers, int32_t count)
{
    count_comm *self = ctx;
    return mics_comm_register(self->inner, buffers, count);
}

static void count_unregister(void *ctx)
{
    count_comm *self = ctx;
    mics_comm_unregister(self->inner);
}

static mics_status count_share(void *ctx, const mics_comm_group *over, size_t bytes,
                               void **memory_out)
{
    count_comm *self = ctx;
    return mics_comm_share(self->inner, over, bytes, memory_out);
}

static void count_unshare(void *ctx, void *memory)
{
    count_comm *self = ctx;
    mics_comm_unshare(self->inner, memory);
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

static void count_set_timeout_handler(void *ctx, mics_timeout_handler handler, void *handler_ctx)
{
    count_comm *self = ctx;
    self->inner->ops->set_timeout_handler(self->inner->ctx, handler, handler_ctx);
}

static void count_post(void *ctx, const mics_heartbeat *heartbeat)
{
    count_comm *self = ctx;
    mics_comm_heartbeat_post(self->inner, heartbeat);
}

static bool count_read(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out)
{
    count_comm *self = ctx;
    return mics_comm_heartbeat_read(self->inner, rank, heartbeat_out, age_s_out);
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
    .set_timeout_handler = count_set_timeout_handler,
    .post = count_post,
    .read = count_read,
    .close = count_close,
    .collective = count_collective,
    .check = count_check,
    .register_buffers = count_register,
    .unregister_buffers = count_unregister,
    .share = count_share,
    .unshare = count_unshare,
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

mics_comm *mics_comm_count_inner(const mics_comm *counting)
{
    assert(mics_comm_is_counting(counting));
    return ((const count_comm *)counting->ctx)->inner;
}

void mics_comm_count_put_inner(mics_comm *counting, mics_comm *inner)
{
    assert(mics_comm_is_counting(counting));
    ((count_comm *)counting->ctx)->inner = inner;
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
