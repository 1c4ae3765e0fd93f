// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// A communicator with links of planted speed, and with a library of its own: what is the fastest on
// it is known beforehand.
#ifndef MICS_TEST_LINKS_H
#define MICS_TEST_LINKS_H

#include "mics/comm.h"
#include "mics/log.h"
#include "mics/memory.h"
#include <stdbool.h>
#include <time.h>

typedef struct links_spec {
    int32_t ranks_per_node;
    int32_t far_us;                    // an exchange that sends to another node takes longer by
    int32_t far_mib_us;                // and by this for each MiB
    int32_t channel_us[MICS_CHANNELS]; // any exchange on a channel takes longer by
    bool library;                      // there is one: rings without any of this
    int32_t library_us;                // takes longer by
} links_spec;

typedef struct links {
    mics_comm base;
    mics_memory *memory;
    mics_comm *inner;
    links_spec spec;
    bool opened; // library_open was called
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
    const bool far = exchange->to >= 0 && exchange->to / per_node != self->base.rank / per_node;
    const double mib = (double)exchange->bytes / (1024 * 1024);
    const double far_us = self->spec.far_us + self->spec.far_mib_us * mib;
    links_sleep(self->spec.channel_us[exchange->channel] + (far ? (int32_t)far_us : 0));
    return self->inner->ops->exchange(self->inner->ctx, exchange);
}

static inline mics_status links_library_open(void *ctx, const mics_comm_group *ring)
{
    links *self = (links *)ctx;
    (void)ring;
    self->opened = self->spec.library;
    return self->spec.library ? MICS_OK : MICS_ERR_UNSUPPORTED;
}

static inline mics_status links_library_gather(void *ctx, const mics_comm_group *ring, void *buffer,
                                               size_t block_bytes)
{
    const links *self = (const links *)ctx;
    if (!self->opened)
        return mics_fail(MICS_ERR_INVALID, "%s: the library was not opened", ring->what);
    links_sleep(self->spec.library_us);
    return mics_comm_all_gather(self->inner, ring, buffer, block_bytes);
}

static inline void links_set_timeout(void *ctx, double seconds)
{
    const links *self = (const links *)ctx;
    self->inner->ops->set_timeout(self->inner->ctx, seconds);
}

static inline void links_abort(void *ctx)
{
    const links *self = (const links *)ctx;
    self->inner->ops->abort(self->inner->ctx);
}

static inline void links_set_late_handler(void *ctx, mics_timeout_handler handler,
                                          void *handler_ctx)
{
    const links *self = (const links *)ctx;
    self->inner->ops->set_timeout_handler(self->inner->ctx, handler, handler_ctx);
}

static inline void links_post(void *ctx, const mics_heartbeat *note)
{
    const links *self = (const links *)ctx;
    mics_comm_heartbeat_post(self->inner, note);
}

static inline bool links_read(void *ctx, int32_t rank, mics_heartbeat *note_out, double *age_s_out)
{
    const links *self = (const links *)ctx;
    return mics_comm_heartbeat_read(self->inner, rank, note_out, age_s_out);
}

static inline void links_close(void *ctx)
{
    links *self = (links *)ctx;
    mics_comm_close(self->inner);
    mics_free(self->memory, self);
}

// *comm is replaced by the wrapper, which closes it.
static inline mics_status links_open_take(mics_memory *memory, const links_spec *spec,
                                          mics_comm **comm)
{
    static const mics_comm_ops ops = {
        .name = "links",
        .exchange = links_exchange,
        .set_timeout = links_set_timeout,
        .abort = links_abort,
        .set_timeout_handler = links_set_late_handler,
        .post = links_post,
        .read = links_read,
        .close = links_close,
        .library_open = links_library_open,
        .library_gather = links_library_gather,
    };
    void *block = NULL;
    MICS_TRY(mics_alloc(memory, MICS_MEM_HOST, sizeof(links), &block));
    links *self = (links *)block;
    self->memory = memory;
    self->inner = *comm;
    self->spec = *spec;
    self->base = **comm;
    self->base.ops = &ops;
    self->base.ctx = self;
    self->base.ranks_sharing = 1;
    *comm = &self->base;
    return MICS_OK;
}

#endif
