// SPDX-FileCopyrightText: The mics authors
// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: its memory is the host's, every call is done when it returns, and so
// an event is the moment at which it was recorded, nobody waits for one, and a failure cannot come
// later.
#include "base/clock.h"
#include "mics/core/device.h"
#include "mics/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_ALIGNMENT = 256 };

typedef struct cpu_device {
    mics_device base;
    double *event_us; // by event
} cpu_device;

static mics_status cpu_alloc(void *ctx, size_t bytes, void **block_out)
{
    (void)ctx;
    if (bytes > SIZE_MAX - BLOCK_ALIGNMENT)
        return mics_fail(MICS_ERR_MEMORY, "cannot allocate %zu bytes", bytes);
    const size_t rounded = (bytes / BLOCK_ALIGNMENT + 1) * BLOCK_ALIGNMENT;
    void *block = aligned_alloc(BLOCK_ALIGNMENT, rounded);
    if (block == NULL)
        return mics_fail(MICS_ERR_MEMORY, "cannot allocate %zu bytes: the system has no more",
                         bytes);
    memset(block, 0, rounded);
    *block_out = block;
    return MICS_OK;
}

static void cpu_free(void *ctx, void *block)
{
    (void)ctx;
    free(block);
}

static void cpu_copy(void *ctx, int32_t stream, void *to, const void *from, size_t bytes)
{
    (void)ctx, (void)stream;
    memcpy(to, from, bytes);
}

static void cpu_zero(void *ctx, int32_t stream, void *to, size_t bytes)
{
    (void)ctx, (void)stream;
    memset(to, 0, bytes);
}

static void cpu_record(void *ctx, int32_t stream, int32_t event)
{
    cpu_device *self = ctx;
    (void)stream;
    self->event_us[event] = mics_clock_us();
}

static void cpu_wait(void *ctx, int32_t stream, int32_t event)
{
    (void)ctx, (void)stream, (void)event;
}

static mics_status cpu_poll(void *ctx, int32_t event, bool *done_out)
{
    (void)ctx, (void)event;
    *done_out = true;
    return MICS_OK;
}

static double cpu_event_us(void *ctx, int32_t event)
{
    const cpu_device *self = ctx;
    return self->event_us[event];
}

static mics_status cpu_synchronize(void *ctx, int32_t stream)
{
    (void)ctx, (void)stream;
    return MICS_OK;
}

static mics_status cpu_check(void *ctx)
{
    (void)ctx;
    return MICS_OK;
}

static void cpu_range_begin(void *ctx, const char *name)
{
    (void)ctx, (void)name;
}

static void cpu_range_end(void *ctx)
{
    (void)ctx;
}

static void *cpu_stream_handle(void *ctx, int32_t stream)
{
    (void)ctx, (void)stream;
    return NULL;
}

static void cpu_info(void *ctx, mics_device_info *info_out)
{
    (void)ctx;
    mics_machine machine;
    memset(info_out, 0, sizeof *info_out);
    snprintf(info_out->name, sizeof info_out->name, "CPU");
    if (mics_machine_read(&machine) != MICS_OK)
        return;
    memcpy(info_out->name, machine.cpu_name, sizeof info_out->name);
    info_out->memory_total_bytes = machine.memory_total_bytes;
    info_out->memory_free_bytes = machine.memory_available_bytes;
    snprintf(info_out->detail, sizeof info_out->detail, "%d cores, %s", (int)machine.cores,
             machine.isa);
}

static void cpu_close(void *ctx)
{
    cpu_device *self = ctx;
    free(self->event_us);
    free(self);
}

static const mics_device_ops cpu_ops = {
    .name = "cpu",
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc,
    .free_host = cpu_free,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .record = cpu_record,
    .wait = cpu_wait,
    .poll = cpu_poll,
    .event_us = cpu_event_us,
    .synchronize = cpu_synchronize,
    .check = cpu_check,
    .range_begin = cpu_range_begin,
    .range_end = cpu_range_end,
    .stream_handle = cpu_stream_handle,
    .info = cpu_info,
    .close = cpu_close,
};

mics_status mics_device_cpu_open(int32_t events, mics_device **device_out)
{
    cpu_device *self = calloc(1, sizeof *self);
    double *event_us = calloc((size_t)events + 1, sizeof *event_us);
    if (self == NULL || event_us == NULL) {
        free(self);
        free(event_us);
        return mics_fail(MICS_ERR_MEMORY, "no memory for a device of %d events", (int)events);
    }
    *self =
        (cpu_device){.base = {.ops = &cpu_ops, .ctx = self, .is_host = true}, .event_us = event_us};
    *device_out = &self->base;
    return MICS_OK;
}

void mics_device_close(mics_device *device)
{
    if (device != NULL)
        device->ops->close(device->ctx);
}
