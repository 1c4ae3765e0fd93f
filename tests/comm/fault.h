// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator whose exchanges fail from a chosen one on, for tests of what comes after.
#pragma once

#include "comm/internal.h"
#include "mics/log.h"
#include "mics/memory.h"
#include <stdatomic.h>
#include <stdbool.h>

// Two threads may exchange at once, one a channel: each draws a number of its own.
typedef struct fault_comm {
    mics_comm base;
    mics_memory *memory;
    int64_t countdown;         // first exchange to fail; 0: none
    _Atomic int64_t exchanges; // started so far
} fault_comm;

// Counts an exchange. MICS_OK: it may go on.
static inline mics_status fault_comm_draw(fault_comm *self, const char *what)
{
    int64_t number = ++self->exchanges;
    if (self->countdown == 0 || number < self->countdown)
        return MICS_OK;
    if (number == self->countdown)
        return mics_fail(MICS_ERR_COMM, "%s: exchange %lld was told to fail", what,
                         (long long)number);
    return MICS_ERR_COMM;
}

static inline mics_status fault_comm_exchange(void *ctx, const mics_exchange *exchange)
{
    fault_comm *self = ctx;
    MICS_TRY(fault_comm_draw(self, exchange->what));
    return mics_comm_exchange(self->base.inner, exchange);
}

static inline mics_status fault_comm_collective(void *ctx, const mics_comm_call *call)
{
    fault_comm *self = ctx;
    if (self->base.inner->ops->collective == NULL)
        return comm_call_by_rings(&self->base, call);
    MICS_TRY(fault_comm_draw(self, call->over->what));
    return mics_comm_collective(self->base.inner, call);
}

static inline mics_status fault_comm_share(void *ctx, const mics_comm_group *over, size_t bytes,
                                           void **memory_out)
{
    fault_comm *self = ctx;
    MICS_TRY(fault_comm_draw(self, over->what));
    return mics_comm_share(self->base.inner, over, bytes, memory_out);
}

static inline void fault_comm_close(void *ctx)
{
    fault_comm *self = ctx;
    mics_comm_close(self->base.inner);
    mics_free(self->memory, self);
}

/* Makes exchange number `countdown` (1 = the next) and all later ones fail with MICS_ERR_COMM, logged
 * once, whatever channels they are on; 0: none. A collective on a device's buffers, or sharing memory,
 * counts as one exchange. The new comm closes `inner`, which is the caller's still after an error.
 */
static inline mics_status fault_open_take(mics_memory *memory, mics_comm *inner, int64_t countdown,
                                          mics_comm **comm_out)
{
    static const mics_comm_ops ops = {
        .name = "fault",
        .exchange = fault_comm_exchange,
        .close = fault_comm_close,
        .collective = fault_comm_collective,
        .share = fault_comm_share,
    };
    if (countdown < 0)
        return mics_fail(MICS_ERR_INVALID, "exchange number %lld cannot fail",
                         (long long)countdown);
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(fault_comm), &block));
    fault_comm *self = block;
    self->memory = memory;
    self->countdown = countdown;
    self->base = *inner;
    self->base.inner = inner;
    self->base.ops = &ops;
    self->base.ctx = self;
    *comm_out = &self->base;
    return MICS_OK;
}
