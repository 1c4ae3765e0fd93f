// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator with links of planted speed: what is the fastest on it is known beforehand.
#pragma once

#include "mics/core/comm.h"
#include "mics/log.h"
#include "mics/memory.h"
#include <stdbool.h>
#include <time.h>

typedef struct links_spec {
    int32_t ranks_per_node;
    int32_t inter_us;                  // an exchange that sends to another node takes longer by
    int32_t channel_us[MICS_CHANNELS]; // any exchange on a channel takes longer by
} links_spec;

typedef struct links {
    mics_comm base;
    mics_memory *memory;
    links_spec spec;
} links;

static inline void links_sleep(int32_t us)
{
    if (us > 0)
        nanosleep(&(struct timespec){.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000L},
                  NULL);
}

static inline mics_status links_exchange(void *ctx, const mics_exchange *exchange)
{
    const links *self = (const links *)ctx;
    const int32_t per_node = self->spec.ranks_per_node;
    const bool inter = exchange->to >= 0 && exchange->to / per_node != self->base.rank / per_node;
    links_sleep(self->spec.channel_us[exchange->channel] + (inter ? self->spec.inter_us : 0));
    return mics_comm_exchange(self->base.inner, exchange);
}

static inline void links_close(void *ctx)
{
    links *self = (links *)ctx;
    mics_comm_close(self->base.inner);
    mics_free(self->memory, self);
}

// *comm is replaced by the wrapper, which closes it.
static inline mics_status links_open_take(mics_memory *memory, const links_spec *spec,
                                          mics_comm **comm)
{
    static const mics_comm_ops ops = {
        .name = "links",
        .exchange = links_exchange,
        .close = links_close,
    };
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(links), &block));
    links *self = (links *)block;
    self->memory = memory;
    self->spec = *spec;
    self->base = **comm;
    self->base.inner = *comm;
    self->base.ops = &ops;
    self->base.ctx = self;
    self->base.ranks_sharing = 1;
    *comm = &self->base;
    return MICS_OK;
}
