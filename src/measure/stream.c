// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// Memory where a rank computes, and waiting for its GPU's streams. On the CPU the memory is the
// host's, and all is done.
#include "base/clock.h"
#include "measure/internal.h"
#include "mics/log.h"
#include <time.h>

enum { CROSSING = MICS_DEVICE_STREAMS }; // the event between streams

static const double TIMEOUT_S = 120;
// The host asks a GPU all the time at first, as rounding to a timer's ticks would count.
static const double SPIN_US = 2000;

mics_status measure_buffer_open(const measure_session *self, size_t bytes, void **buffer_out)
{
    const mics_device *device = self->rank->device;
    if (device == NULL)
        return mics_alloc(self->rank->memory, MICS_MEM_WORKSPACE, bytes, buffer_out);
    return device->ops->alloc(device->ctx, bytes, buffer_out);
}

void measure_buffer_close(const measure_session *self, void *buffer)
{
    const mics_device *device = self->rank->device;
    if (device == NULL)
        mics_free(self->rank->memory, buffer);
    else
        device->ops->free(device->ctx, buffer);
}

// An event for each stream, as two threads may wait at once.
mics_status measure_wait(const measure_session *self, int32_t stream)
{
    const mics_device *device = self->rank->device;
    const double begin_us = mics_clock_us();
    bool done = device == NULL;
    if (!done)
        device->ops->record(device->ctx, stream, stream);
    while (!done) {
        const double waited_us = mics_clock_us() - begin_us;
        MICS_TRY(device->ops->check(device->ctx));
        if (stream > 0)
            MICS_TRY(mics_comm_check(self->rank->comm));
        MICS_TRY(device->ops->poll(device->ctx, stream, &done));
        if (!done && waited_us > TIMEOUT_S * 1e6)
            return mics_fail(MICS_ERR_TIMEOUT, "mics bench: the GPU is not done within %g s",
                             TIMEOUT_S);
        if (!done && waited_us > SPIN_US)
            nanosleep(&(struct timespec){.tv_nsec = 50 * 1000}, NULL);
    }
    return MICS_OK;
}

void measure_follow(const measure_session *self, int32_t from, int32_t to)
{
    const mics_device *device = self->rank->device;
    if (device == NULL || from == to)
        return;
    device->ops->record(device->ctx, from, CROSSING);
    device->ops->wait(device->ctx, to, CROSSING);
}
