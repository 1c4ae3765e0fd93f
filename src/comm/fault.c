// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator whose exchanges fail from a chosen one on, for tests of what comes after.
#include "internal.h"
#include "mics/log.h"

// Two threads may exchange at once, one a channel: each draws a number of its own.
typedef struct fault_comm {
    mics_comm base;
    mics_memory *memory;
    mics_comm *inner;
    int64_t countdown;         // first exchange to fail; 0: none
    _Atomic int64_t exchanges; // started so far
} fault_comm;

// Counts an exchange. MICS_OK: it may go on.
static mics_status draw(fault_comm *self, const char *what)
{
    int64_t number = ++self->exchanges;
    if (self->countdown == 0 || number < self->countdown)
        return MICS_OK;
    if (number == self->countdown)
        return mics_fail(MICS_ERR_COMM, "%s: exchange %lld was told to fail", what,
                         (long long)number);
    return MICS_ERR_COMM;
}

static mics_status fault_exchange(void *ctx, const mics_exchange *exchange)
{
    fault_comm *self = ctx;
    MICS_TRY(draw(self, exchange->what));
    return self->inner->ops->exchange(self->inner->ctx, exchange);
}

static mics_status fault_collective(void *ctx, const mics_comm_call *call)
{
    fault_comm *self = ctx;
    if (self->inner->ops->collective == NULL)
        return comm_call_by_rings(&self->base, call);
    MICS_TRY(draw(self, call->ring->what));
    return mics_comm_collective(self->inner, call);
}

static mics_status fault_check(void *ctx)
{
    fault_comm *self = ctx;
    return mics_comm_check(self->inner);
}

static mics_status fault_register(void *ctx, const mics_comm_buffer *buffers, int32_t count)
{
    fault_comm *self = ctx;
    return mics_comm_register(self->inner, buffers, count);
}

static void fault_unregister(void *ctx)
{
    fault_comm *self = ctx;
    mics_comm_unregister(self->inner);
}

static mics_status fault_share(void *ctx, const mics_comm_group *ring, size_t bytes,
                               void **memory_out)
{
    fault_comm *self = ctx;
    MICS_TRY(draw(self, ring->what));
    return mics_comm_share(self->inner, ring, bytes, memory_out);
}

static void fault_unshare(void *ctx, void *memory)
{
    fault_comm *self = ctx;
    mics_comm_unshare(self->inner, memory);
}

static void fault_set_timeout(void *ctx, double seconds)
{
    fault_comm *self = ctx;
    self->inner->ops->set_timeout(self->inner->ctx, seconds);
}

static void fault_abort(void *ctx)
{
    fault_comm *self = ctx;
    self->inner->ops->abort(self->inner->ctx);
}

static void fault_set_timeout_handler(void *ctx, mics_timeout_handler handler, void *handler_ctx)
{
    fault_comm *self = ctx;
    self->inner->ops->set_timeout_handler(self->inner->ctx, handler, handler_ctx);
}

static void fault_post(void *ctx, const mics_heartbeat *heartbeat)
{
    fault_comm *self = ctx;
    mics_comm_heartbeat_post(self->inner, heartbeat);
}

static bool fault_read(void *ctx, int32_t rank, mics_heartbeat *heartbeat_out, double *age_s_out)
{
    fault_comm *self = ctx;
    return mics_comm_heartbeat_read(self->inner, rank, heartbeat_out, age_s_out);
}

static void fault_close(void *ctx)
{
    fault_comm *self = ctx;
    mics_comm_close(self->inner);
    mics_free(self->memory, self);
}

mics_status mics_comm_fault_open_take(mics_memory *memory, mics_comm *inner, int64_t countdown,
                                      mics_comm **comm_out)
{
    static const mics_comm_ops ops = {
        .name = "fault",
        .exchange = fault_exchange,
        .set_timeout = fault_set_timeout,
        .abort = fault_abort,
        .set_timeout_handler = fault_set_timeout_handler,
        .post = fault_post,
        .read = fault_read,
        .close = fault_close,
        .collective = fault_collective,
        .check = fault_check,
        .register_buffers = fault_register,
        .unregister_buffers = fault_unregister,
        .share = fault_share,
        .unshare = fault_unshare,
    };
    if (countdown < 0)
        return mics_fail(MICS_ERR_INVALID, "exchange number %lld cannot fail",
                         (long long)countdown);
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(fault_comm), &block));
    fault_comm *self = block;
    self->memory = memory;
    self->inner = inner;
    self->countdown = countdown;
    self->base = *inner;
    self->base.ops = &ops;
    self->base.ctx = self;
    *comm_out = &self->base;
    return MICS_OK;
}
