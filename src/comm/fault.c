// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator whose exchanges fail from a chosen one on, for tests of what comes after.
#include "mics/comm.h"
#include "mics/log.h"

typedef struct fault_comm {
    mics_comm base;
    mics_memory *memory;
    mics_comm *inner;
    int64_t countdown; // first exchange to fail; 0: none
    int64_t exchanges; // started so far
} fault_comm;

static mics_status fault_exchange(void *ctx, const mics_exchange *exchange)
{
    fault_comm *self = ctx;
    self->exchanges++;
    if (self->countdown == 0 || self->exchanges < self->countdown)
        return self->inner->ops->exchange(self->inner->ctx, exchange);
    if (self->exchanges == self->countdown)
        return mics_fail(MICS_ERR_COMM, "%s: exchange %lld was told to fail", exchange->what,
                         (long long)self->exchanges);
    return MICS_ERR_COMM;
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
        .close = fault_close,
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
